// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// endTimeout limits the time for calls under way when the server ends.
const endTimeout = 5 * time.Second

// Serve serves a supervisor on a unix socket that only this user can open, until ctx ends.
// It replaces an existing socket: the lock of the run directory makes this process the
// only supervisor.
func Serve(ctx context.Context, socket string, s *Supervisor) error {
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	mpsv1.RegisterSupervisorServer(server, service{supervisor: s})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// The daemons keep running, and the agent repeats interrupted calls.
		timer := time.AfterFunc(endTimeout, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve on %s: %w", socket, err)
	}
	<-stopped
	return nil
}

// listen creates the socket in a private folder and renames it. So no other user can open
// it at any time.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o711); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(socket), ".socket-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	made := filepath.Join(private, "s")
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", made)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the socket has another name by then
	}
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, socket)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// service implements the gRPC service.
type service struct {
	mpsv1.UnimplementedSupervisorServer
	supervisor *Supervisor
}

func (s service) Ensure(ctx context.Context, r *mpsv1.EnsureRequest) (*mpsv1.EnsureResponse, error) {
	dirs, err := s.supervisor.EnsureMPS(ctx, mpsv1.DecodeDaemon(r.GetDaemon()))
	if err != nil {
		return nil, mpsv1.EncodeError(err)
	}
	return &mpsv1.EnsureResponse{PipeDir: dirs.Pipe, ShmDir: dirs.Shm}, nil
}

func (s service) Stop(ctx context.Context, r *mpsv1.StopRequest) (*mpsv1.StopResponse, error) {
	if err := s.supervisor.StopMPS(ctx, r.GetName()); err != nil {
		return nil, mpsv1.EncodeError(err)
	}
	return &mpsv1.StopResponse{}, nil
}

func (s service) List(ctx context.Context, r *mpsv1.ListRequest) (*mpsv1.ListResponse, error) {
	statuses, err := s.supervisor.MPSDaemons(ctx, !r.GetWithoutServers())
	if err != nil {
		return nil, mpsv1.EncodeError(err)
	}
	var response mpsv1.ListResponse
	for _, status := range statuses {
		response.Daemons = append(response.Daemons, mpsv1.EncodeStatus(status))
	}
	return &response, nil
}

func (s service) Settings(ctx context.Context, r *mpsv1.SettingsRequest) (*mpsv1.SettingsResponse, error) {
	response := &mpsv1.SettingsResponse{MultiUser: s.supervisor.options.MultiUser}
	if r.GetNamespaces() {
		var err error
		if response.Namespaces, err = s.supervisor.Namespaces(ctx); err != nil {
			return nil, mpsv1.EncodeError(err)
		}
	}
	return response, nil
}
