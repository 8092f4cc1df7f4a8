// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// older is a supervisor of a release that ignores namespaces.
type older struct {
	mpsv1.UnimplementedSupervisorServer
}

func (older) Ensure(context.Context, *mpsv1.EnsureRequest) (*mpsv1.EnsureResponse, error) {
	return &mpsv1.EnsureResponse{PipeDir: "/pipe", ShmDir: "/shm"}, nil
}

func (older) Settings(context.Context, *mpsv1.SettingsRequest) (*mpsv1.SettingsResponse, error) {
	return &mpsv1.SettingsResponse{MultiUser: true}, nil
}

// An agent can be updated before its supervisor.
func TestASupervisorOfAnOlderReleaseHasNoNamespaces(t *testing.T) {
	socket := filepath.Join(files.ShortDir(t), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	mpsv1.RegisterSupervisorServer(server, older{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if has, err := c.Namespaces(t.Context()); err != nil || has {
		t.Errorf("namespaces: %t, %v, want none", has, err)
	}
	daemon := gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{"GPU-1"}}
	if _, err := c.EnsureMPS(t.Context(), daemon); err != nil {
		t.Errorf("without namespaces: %v", err)
	}
	daemon.Namespaces = []gpu.MPSNamespace{{Name: "one", ThreadPercentage: 10}}
	if dirs, err := c.EnsureMPS(t.Context(), daemon); !errors.Is(err, gpu.ErrNotSupported) || !strings.Contains(err.Error(), "update it") || dirs != (gpu.MPSDirs{}) {
		t.Errorf("with namespaces: %+v, %v, want an error that is ErrNotSupported and says what to do", dirs, err)
	}
}
