// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the HTTP endpoints, which pods of other tenants may reach. Answers
// are short, and a scraper keeps one connection.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	// idleTimeout is longer than the usual interval of scrapers, so that they keep
	// their connection.
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 8 << 10
	// maxConnections at a time. What one address can have is far less, so that it
	// leaves room for the kubelet's probes.
	maxConnections, maxConnectionsPerHost = 128, 8
)

// serveHTTP serves on the address until ctx ends. It returns an error if it cannot
// listen, and otherwise a function that waits for the end. It calls fatal if serving
// ends early.
func serveHTTP(ctx context.Context, address string, handler http.Handler, fatal func(error)) (wait func(), err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := newServer(handler)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // answers are short
	go func() {
		defer close(closed)
		defer stop()
		if err := server.Serve(limit(listener)); !errors.Is(err, http.ErrServerClosed) {
			fatal(fmt.Errorf("serve metrics and health: %w", err))
		}
	}()
	return func() { <-closed }, nil
}

func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// A client could fill the log with its mistakes.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// limitedListener closes connections beyond the limits at once. If it waited, a
// client that opens many connections could lock out the kubelet's probes, which
// would restart the agent.
type limitedListener struct {
	net.Listener
	total, perHost int

	mu    sync.Mutex
	open  int
	hosts map[string]int
}

func limit(listener net.Listener) *limitedListener {
	return &limitedListener{Listener: listener, total: maxConnections, perHost: maxConnectionsPerHost, hosts: map[string]int{}}
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err == nil && l.enter(host) {
			return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // nothing was written
	}
}

func (l *limitedListener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.total || l.hosts[host] >= l.perHost {
		return false
	}
	l.open++
	l.hosts[host]++
	return true
}

func (l *limitedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
