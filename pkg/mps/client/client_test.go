// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// fake is a supervisor whose calls all end in the same way.
type fake func(ctx context.Context) error

func (f fake) EnsureMPS(ctx context.Context, _ gpu.MPSDaemon) (gpu.MPSDirs, error) {
	return gpu.MPSDirs{}, f(ctx)
}
func (f fake) StopMPS(ctx context.Context, _ string) error                     { return f(ctx) }
func (f fake) MPSDaemons(ctx context.Context, _ bool) ([]gpu.MPSStatus, error) { return nil, f(ctx) }
func (f fake) MultiUser(ctx context.Context) (bool, error)                     { return false, f(ctx) }
func (f fake) Namespaces(ctx context.Context) (bool, error)                    { return false, f(ctx) }

// serve returns a client of a server, and its socket.
func serve(t *testing.T, handler http.Handler) (c *client.Client, socket string) {
	t.Helper()
	socket = filepath.Join(files.ShortDir(t), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return client.New(socket), socket
}

func TestAnErrorKeepsItsSentinelAndSaysWhoFailed(t *testing.T) {
	const why = "two words that are not ready, or timed out"
	sentinels := []error{gpu.ErrInvalid, gpu.ErrNotFound, gpu.ErrInUse, gpu.ErrNoCapacity, gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrCorrupt, gpu.ErrTimeout, gpu.ErrNotReady}
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusInternalServerError) }
	}
	type test struct {
		handler  http.Handler
		sentinel error // nil for none
		says     string
		// away says that the client blames the supervisor and not a daemon.
		away bool
	}
	tests := map[string]test{
		"another error of the supervisor": {mpsv1.Handler(fake(func(context.Context) error { return errors.New(why) })), nil, why, false},
		"a reason of a later release":     {answer(`{"Message":"` + why + `","Reason":"LATER"}`), nil, why, false},
		"a release without the call":      {http.NotFoundHandler(), gpu.ErrNotSupported, "404", false},
		"it ends during the call":         {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), gpu.ErrNotReady, "EOF", true},
	}
	for _, sentinel := range sentinels {
		tests["the supervisor's "+sentinel.Error()] = test{mpsv1.Handler(fake(func(context.Context) error { return fmt.Errorf("%s: %w", why, sentinel) })), sentinel, why, false}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, socket := serve(t, test.handler)
			_, err := c.MPSDaemons(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), socket) != test.away {
				t.Errorf("error %v, want one that says %q, and that names the socket: %t", err, test.says, test.away)
			}
			for _, sentinel := range sentinels {
				if is := errors.Is(err, sentinel); is != errors.Is(test.sentinel, sentinel) {
					t.Errorf("error %v is %q: %t", err, sentinel, is)
				}
			}
		})
	}
}

func TestADaemonInAnUnknownStateHasFailed(t *testing.T) {
	c, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `[{"Daemon":{"Name":"gpu-1a-00"},"State":"Later"}]`)
	}))
	if all, err := c.MPSDaemons(t.Context()); err != nil || len(all) != 1 || all[0].State != gpu.MPSFailed {
		t.Errorf("got %+v, %v, want one failed daemon", all, err)
	}
}

func TestASupervisorThatHangsIsNamed(t *testing.T) {
	arrived, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	c, socket := serve(t, mpsv1.Handler(fake(func(ctx context.Context) error {
		arrived <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	})))
	for name, call := range map[string]func(context.Context) error{
		"start":    func(ctx context.Context) error { _, err := c.EnsureMPS(ctx, gpu.MPSDaemon{}); return err },
		"stop":     func(ctx context.Context) error { return c.StopMPS(ctx, "gpu-1a-00") },
		"list":     func(ctx context.Context) error { _, err := c.MPSDaemons(ctx); return err },
		"settings": func(ctx context.Context) error { _, err := c.MultiUser(ctx); return err },
	} {
		check := func(t *testing.T, err error) {
			t.Helper()
			require.Error(t, "a call", err, gpu.ErrTimeout, "gpu-mps-supervisor has not answered in time on "+socket)
			<-ended // the supervisor learns that the client has gone
		}
		t.Run(name+" until a deadline", func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			check(t, call(ctx))
			<-arrived
		})
		t.Run(name+" until the caller gives up", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-arrived; cancel() }()
			check(t, call(ctx))
		})
	}
}

var must = require.NoError
