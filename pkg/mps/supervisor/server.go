// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

const (
	// endTimeout limits the time for calls under way when the server ends.
	endTimeout = 5 * time.Second
	// readTimeout limits the time in which the header of a request arrives.
	readTimeout = 5 * time.Second
)

// Serve serves a supervisor on a unix socket that only this user can open, until ctx ends.
// It replaces an existing socket: the lock of the run directory makes this process the
// only supervisor.
func Serve(ctx context.Context, socket string, s *Supervisor) error {
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mpsv1.Handler(s), ReadHeaderTimeout: readTimeout}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// The daemons keep running, and the agent repeats interrupted calls.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		err := server.Shutdown(limited)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		stopped <- err
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", socket, err)
	}
	return <-stopped
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
