// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// dial connects a client that has an address of its own.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	local, err := net.ResolveTCPAddr("tcp", from+":0")
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{LocalAddr: local}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
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

func TestOneClientCannotKeepTheProbesOut(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(limit(listener)) }()
	t.Cleanup(func() { _, _ = server.Close(), <-ended })
	address := listener.Addr().String()

	var greedy []net.Conn
	for range maxConnectionsPerHost {
		conn := dial(t, "127.0.0.2", address)
		if !answered(conn) {
			t.Fatal("a connection within the limit is not served")
		}
		greedy = append(greedy, conn)
	}
	if answered(dial(t, "127.0.0.2", address)) {
		t.Errorf("connection %d of one client is served", maxConnectionsPerHost+1)
	}
	if !answered(dial(t, "127.0.0.1", address)) {
		t.Error("the kubelet's probe is not served with a greedy client")
	}
	// A client that closes a connection has another one.
	if err := greedy[0].Close(); err != nil {
		t.Fatal(err)
	}
	for !answered(dial(t, "127.0.0.2", address)) {
		if t.Context().Err() != nil {
			t.Fatal("a connection that was closed still counts")
		}
	}
}

func TestAllClientsTogetherHaveALimitedNumberOfConnections(t *testing.T) {
	t.Parallel()
	l := limit(nil)
	for i := range maxConnections {
		if !l.enter(fmt.Sprint(i)) {
			t.Fatalf("connection %d is refused", i+1)
		}
	}
	if l.enter("one more") {
		t.Errorf("connection %d is served", maxConnections+1)
	}
	l.leave("0")
	if !l.enter("one more") {
		t.Error("no client is served in place of a connection that has ended")
	}
	for i := 1; i < maxConnections; i++ {
		l.leave(fmt.Sprint(i))
	}
	l.leave("one more")
	if l.open != 0 || len(l.hosts) != 0 {
		t.Errorf("%d connections of %d hosts count after all have ended", l.open, len(l.hosts))
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
	wait, err := serveHTTP(ctx, "127.0.0.1:0", http.NotFoundHandler(), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	wait()
}
