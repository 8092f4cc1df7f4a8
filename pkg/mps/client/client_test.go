// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// serve returns a client of the service, and its socket.
func serve(t *testing.T, service mpsv1.SupervisorServer) (c *client.Client, socket string) {
	t.Helper()
	socket = filepath.Join(files.ShortDir(t), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	mpsv1.RegisterSupervisorServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c, err = client.New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, socket
}

// failing is a supervisor whose calls fail.
type failing struct {
	mpsv1.UnimplementedSupervisorServer
	err error
}

func (f failing) List(context.Context, *mpsv1.ListRequest) (*mpsv1.ListResponse, error) {
	return nil, f.err
}

func TestAnErrorKeepsItsSentinelAndSaysWhoFailed(t *testing.T) {
	sentinels := []error{gpu.ErrInvalid, gpu.ErrNotFound, gpu.ErrInUse, gpu.ErrNoCapacity, gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrCorrupt, gpu.ErrTimeout, gpu.ErrNotReady}
	const why = "two words that are not ready, or timed out"
	type test struct {
		err      error
		sentinel error // nil for none
		// away says that the client blames the supervisor and not a daemon.
		away bool
	}
	tests := map[string]test{
		"another error of the supervisor": {mpsv1.EncodeError(errors.New(why)), nil, false},
		"its call ended":                  {mpsv1.EncodeError(fmt.Errorf("%s: %w", why, context.DeadlineExceeded)), gpu.ErrTimeout, true},
		"its call was cancelled":          {mpsv1.EncodeError(fmt.Errorf("%s: %w", why, context.Canceled)), gpu.ErrTimeout, true},
		"a code of a later release":       {status.Error(codes.Aborted, why), nil, false},
		"an error without its detail":     {status.Error(codes.ResourceExhausted, why), gpu.ErrNoCapacity, false},
		"gRPC cannot reach it":            {status.Error(codes.Unavailable, why), gpu.ErrNotReady, true},
	}
	for _, sentinel := range sentinels {
		tests["the supervisor's "+sentinel.Error()] = test{mpsv1.EncodeError(fmt.Errorf("%s: %w", why, sentinel)), sentinel, false}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, socket := serve(t, failing{err: test.err})
			_, err := c.MPSDaemons(t.Context())
			if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), socket) != test.away {
				t.Errorf("error %v, want one with the reason, that names the socket: %t", err, test.away)
			}
			for _, sentinel := range sentinels {
				if is := errors.Is(err, sentinel); is != errors.Is(test.sentinel, sentinel) {
					t.Errorf("error %v is %q: %t", err, sentinel, is)
				}
			}
		})
	}
}
