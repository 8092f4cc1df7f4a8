// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// hung is a supervisor that takes every call and answers none.
type hung struct {
	mpsv1.UnimplementedSupervisorServer
	arrived  chan struct{} // one item for each call
	released chan struct{}
}

func (h hung) hang() error {
	h.arrived <- struct{}{}
	<-h.released
	return errors.New("released")
}

func (h hung) Ensure(context.Context, *mpsv1.EnsureRequest) (*mpsv1.EnsureResponse, error) {
	return nil, h.hang()
}

func (h hung) Stop(context.Context, *mpsv1.StopRequest) (*mpsv1.StopResponse, error) {
	return nil, h.hang()
}

func (h hung) List(context.Context, *mpsv1.ListRequest) (*mpsv1.ListResponse, error) {
	return nil, h.hang()
}

func (h hung) Settings(context.Context, *mpsv1.SettingsRequest) (*mpsv1.SettingsResponse, error) {
	return nil, h.hang()
}

func TestASupervisorThatHangsIsNamed(t *testing.T) {
	socket := filepath.Join(files.ShortDir(t), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, h := grpc.NewServer(), hung{arrived: make(chan struct{}, 100), released: make(chan struct{})}
	mpsv1.RegisterSupervisorServer(server, h)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		close(h.released)
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	client, err := client.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	for name, call := range map[string]func(context.Context) error{
		"start":    func(ctx context.Context) error { _, err := client.EnsureMPS(ctx, shareOfA); return err },
		"stop":     func(ctx context.Context) error { return client.StopMPS(ctx, shareOfA.Name) },
		"list":     func(ctx context.Context) error { _, err := client.MPSDaemons(ctx); return err },
		"settings": func(ctx context.Context) error { _, err := client.MultiUser(ctx); return err },
	} {
		check := func(t *testing.T, err error) {
			t.Helper()
			if !errors.Is(err, gpu.ErrTimeout) || !strings.Contains(err.Error(), "gpu-mps-supervisor has not answered in time on "+socket) {
				t.Errorf("error %v, want one that is ErrTimeout and names the supervisor's socket %s", err, socket)
			}
		}
		t.Run(name+" until a deadline", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			check(t, call(ctx))
		})
		t.Run(name+" until the caller gives up", func(t *testing.T) {
			for len(h.arrived) > 0 {
				<-h.arrived
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-h.arrived; cancel() }()
			check(t, call(ctx))
		})
	}
}
