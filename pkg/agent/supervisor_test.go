// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// supervisor is a fake gpu-mps-supervisor that records the requested daemons and
// starts none.
type supervisor struct {
	// stop ends it, and leaves nothing on its socket.
	stop func()

	mu      sync.Mutex
	daemons map[string]gpu.MPSDaemon
	// changes counts the calls that were to change something.
	changes int
	// namespaces is set if the daemons can have namespaces.
	namespaces bool
}

// MultiUser implements the protocol.
func (s *supervisor) MultiUser(context.Context) (bool, error) { return false, nil }

// Namespaces implements the protocol.
func (s *supervisor) Namespaces(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespaces, nil
}

// setNamespaces sets whether the daemons can have namespaces.
func (s *supervisor) setNamespaces(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = on
}

// EnsureMPS implements the protocol.
func (s *supervisor) EnsureMPS(_ context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.daemons[d.Name] = d
	dir := "/run/gpu-mps-supervisor/daemons/" + d.Name
	if d.HasNamespaces() {
		return gpu.MPSDirs{Pipe: dir + "/pipe/s", Shm: dir + "/shm"}, nil
	}
	return gpu.MPSDirs{Pipe: dir + "/pipe", Shm: dir + "/shm"}, nil
}

// StopMPS implements the protocol.
func (s *supervisor) StopMPS(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.daemons, name)
	return nil
}

// MPSDaemons implements the protocol.
func (s *supervisor) MPSDaemons(context.Context, bool) ([]gpu.MPSStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []gpu.MPSStatus
	for _, daemon := range s.daemons {
		all = append(all, gpu.MPSStatus{Daemon: daemon, State: gpu.MPSReady})
	}
	return all, nil
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

func (s *supervisor) daemon(name string) gpu.MPSDaemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.daemons[name]
}

// supervise starts a supervisor on the node, which has these daemons already.
func (n *node) supervise(t *testing.T, daemons ...string) *supervisor {
	t.Helper()
	s := &supervisor{daemons: map[string]gpu.MPSDaemon{}}
	for _, name := range daemons {
		s.daemons[name] = gpu.MPSDaemon{Name: name}
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", n.Supervisor)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mpsv1.Handler(s), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	s.stop = sync.OnceFunc(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}
