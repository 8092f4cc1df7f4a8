// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// dial connects a client with its own address.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	local, err := net.ResolveTCPAddr("tcp", from+":0")
	must(t, err)
	d := net.Dialer{LocalAddr: local}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answered sends a request and reports whether an answer comes.
func answered(conn net.Conn) bool {
	if _, err := fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
		return false
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

// serve starts a server and returns its address.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	must(t, err)
	wait := serveOn(ctx, listener, handler, func(err error) { t.Error(err) })
	t.Cleanup(func() { cancel(); wait() })
	return listener.Addr().String()
}

func nothing(http.ResponseWriter, *http.Request) {}

// pod is the address of the i-th client.
func pod(i int) string { return fmt.Sprintf("127.0.%d.%d", 1+i/250, 1+i%250) }

func TestNoClientsKeepTheProbesOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pods, each int
		do         func(conn net.Conn) bool
		// from is the address of the kubelet.
		from string
	}{
		"sixteen pods with eight idle connections each":        {16, 8, answered, "127.0.0.9"},
		"sixteen pods with eight requests that do not end":     {16, 8, send("GET /metr"), "127.0.0.9"},
		"sixteen pods with eight connections that say nothing": {16, 8, send(""), "127.0.0.9"},
		"one pod with all connections":                         {1, maxConnections, answered, "127.0.0.9"},
		"as many pods as connections":                          {maxConnections, 1, answered, "127.0.0.9"},
		"as many pods as connections, none of them idle":       {maxConnections, 1, send("GET /metr"), "127.0.0.9"},
		"pods with the kubelet's address":                      {1, maxConnections, send("GET /metr"), pod(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, nothing)
			for i := range tc.pods {
				for range tc.each {
					if !tc.do(dial(t, pod(i), address)) {
						t.Fatal("a connection within the limit is not served")
					}
				}
			}
			for range 10 {
				if !answered(dial(t, tc.from, address)) {
					t.Fatal("the kubelet's probe is not answered")
				}
			}
		})
	}
}

// send returns a function that sends a text.
func send(text string) func(net.Conn) bool {
	return func(conn net.Conn) bool {
		_, err := fmt.Fprint(conn, text)
		return err == nil
	}
}

// A scraper keeps its connection, however many others a greedy client opens.
func TestAGreedyClientDisplacesItself(t *testing.T) {
	t.Parallel()
	address := serve(t, nothing)
	scraper := dial(t, "127.0.0.9", address)
	if !answered(scraper) {
		t.Fatal("the scraper is not answered")
	}
	greedy := make([]net.Conn, 2*maxConnections)
	for i := range greedy {
		if greedy[i] = dial(t, pod(0), address); !answered(greedy[i]) {
			t.Fatalf("connection %d is not answered", i)
		}
	}
	if !answered(scraper) {
		t.Error("the scraper has lost its connection")
	}
	if answered(greedy[0]) {
		t.Error("more connections are open than the limit")
	}
	if !answered(greedy[len(greedy)-1]) {
		t.Error("the newest connection was closed, and not the one that was idle for longest")
	}
}

func TestAConnectionInUseIsClosedAfterTheIdleOnes(t *testing.T) {
	t.Parallel()
	serving, finish := make(chan struct{}), make(chan struct{})
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(serving)
			<-finish
		}
	})
	served := dial(t, pod(0), address)
	if !send("GET /slow HTTP/1.1\r\nHost: agent\r\n\r\n")(served) {
		t.Fatal("cannot send")
	}
	<-serving
	for range 2 * maxConnections {
		if !answered(dial(t, pod(0), address)) {
			t.Fatal("a connection is not answered")
		}
	}
	close(finish)
	response, err := http.ReadResponse(bufio.NewReader(served), nil)
	if err != nil {
		t.Fatalf("a request was interrupted for a new connection of the same client: %v", err)
	}
	_ = response.Body.Close()
}

func TestConnectionsThatHaveEndedDoNotCount(t *testing.T) {
	t.Parallel()
	l := limit(nil)
	var all []*limitedConn
	for range 3 * maxConnections {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		admitted, displaced := l.admit(ours)
		if displaced != nil {
			_ = displaced.Close()
		}
		all = append(all, admitted)
		if len(l.conns) > maxConnections {
			t.Fatalf("%d connections are open", len(l.conns))
		}
	}
	for _, c := range all {
		_ = c.Close()
	}
	if len(l.conns) > 0 {
		t.Errorf("%d connections count after all have ended", len(l.conns))
	}
}

func TestAClientThatSendsOrReadsNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(nil)
	for name, got := range map[string]int64{
		"read header": int64(s.ReadHeaderTimeout), "read": int64(s.ReadTimeout), "write": int64(s.WriteTimeout), "idle": int64(s.IdleTimeout),
		"header bytes": int64(s.MaxHeaderBytes),
	} {
		if got <= 0 {
			t.Errorf("no limit: %s", name)
		}
	}
}

func TestTheEndOfTheAgentEndsTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := Serve(ctx, "127.0.0.1:0", http.NotFoundHandler(), func(err error) { t.Error(err) })
	must(t, err)
	cancel()
	wait()
}

var must = require.NoError
