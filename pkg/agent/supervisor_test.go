// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// supervisor is a fake gpu-mps-supervisor that records the requested daemons and
// starts none.
type supervisor struct {
	mpsv1.UnimplementedSupervisorServer

	// stop ends it, and leaves nothing on its socket.
	stop func()

	mu      sync.Mutex
	daemons map[string]*mpsv1.Daemon
	// changes counts the calls that were to change something.
	changes int
	// namespaces is set if the daemons can have namespaces.
	namespaces bool
}

// Settings implements the protocol.
func (s *supervisor) Settings(context.Context, *mpsv1.SettingsRequest) (*mpsv1.SettingsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &mpsv1.SettingsResponse{Namespaces: s.namespaces}, nil
}

// setNamespaces sets whether the daemons can have namespaces.
func (s *supervisor) setNamespaces(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = on
}

// Ensure implements the protocol.
func (s *supervisor) Ensure(_ context.Context, r *mpsv1.EnsureRequest) (*mpsv1.EnsureResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.daemons[r.GetDaemon().GetName()] = r.GetDaemon()
	dir := "/run/gpu-mps-supervisor/daemons/" + r.GetDaemon().GetName()
	if len(r.GetDaemon().GetNamespaces()) > 0 {
		return &mpsv1.EnsureResponse{PipeDir: dir + "/pipe/s", ShmDir: dir + "/shm"}, nil
	}
	return &mpsv1.EnsureResponse{PipeDir: dir + "/pipe", ShmDir: dir + "/shm"}, nil
}

// Stop implements the protocol.
func (s *supervisor) Stop(_ context.Context, r *mpsv1.StopRequest) (*mpsv1.StopResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.daemons, r.GetName())
	return &mpsv1.StopResponse{}, nil
}

// List implements the protocol.
func (s *supervisor) List(context.Context, *mpsv1.ListRequest) (*mpsv1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &mpsv1.ListResponse{}
	for _, daemon := range s.daemons {
		response.Daemons = append(response.Daemons, &mpsv1.DaemonStatus{Daemon: daemon, State: mpsv1.State_STATE_READY})
	}
	return response, nil
}

func (s *supervisor) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.daemons {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *supervisor) daemon(name string) *mpsv1.Daemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.daemons[name]
}

// supervise starts a supervisor on the node, which has these daemons already.
func (n *node) supervise(t *testing.T, daemons ...string) *supervisor {
	t.Helper()
	s := &supervisor{daemons: map[string]*mpsv1.Daemon{}}
	for _, name := range daemons {
		s.daemons[name] = &mpsv1.Daemon{Name: name}
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", n.Supervisor)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	mpsv1.RegisterSupervisorServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	s.stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}
