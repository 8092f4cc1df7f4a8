// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
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
	// maxConnections is the number of connections at a time.
	maxConnections = 128
)

// Serve serves on the address until ctx ends. It returns an error if it cannot
// listen, and otherwise a function that waits for the end. It calls fatal if serving
// ends early.
func Serve(ctx context.Context, address string, handler http.Handler, fatal func(error)) (wait func(), err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return serveOn(ctx, listener, handler, fatal), nil
}

// serveOn serves on the listener until ctx ends.
func serveOn(ctx context.Context, listener net.Listener, handler http.Handler, fatal func(error)) (wait func()) {
	limited := limit(listener)
	server := newServer(handler)
	server.ConnState = limited.follow
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // answers are short
	go func() {
		defer close(closed)
		defer stop()
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			fatal(fmt.Errorf("serve metrics and health: %w", err))
		}
	}()
	return func() { <-closed }
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

// limitedListener limits the connections at a time. It admits every new connection: the
// kubelet restarts an agent whose probes are refused, and their address is not known. In its
// place it closes the least recently used connection of the client that has the most, so
// that neither one client nor many can keep others out.
type limitedListener struct {
	net.Listener
	most int

	mu    sync.Mutex
	uses  uint64 // counts changes of connections
	conns map[*limitedConn]bool
}

func limit(listener net.Listener) *limitedListener {
	return &limitedListener{Listener: listener, most: maxConnections, conns: map[*limitedConn]bool{}}
}

// Accept returns the next connection.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	admitted, displaced := l.admit(conn)
	if displaced != nil {
		_ = displaced.Close() // the client connects again
	}
	return admitted, nil
}

// admit counts a connection. displaced is the connection to close for it, or nil.
func (l *limitedListener) admit(conn net.Conn) (admitted, displaced *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		displaced = l.leastUseful()
		delete(l.conns, displaced)
	}
	admitted = &limitedConn{Conn: conn, client: clientOf(conn), listener: l, used: l.next()}
	l.conns[admitted] = true
	return admitted, displaced
}

// leastUseful returns the connection to close first. The caller holds the lock.
func (l *limitedListener) leastUseful() *limitedConn {
	perClient := map[string]int{}
	for c := range l.conns {
		perClient[c.client]++
	}
	var least *limitedConn
	for c := range l.conns {
		if least == nil || cmp.Or(
			cmp.Compare(perClient[least.client], perClient[c.client]),
			cmp.Compare(c.rank(), least.rank()),
		) < 0 {
			least = c
		}
	}
	return least
}

// next returns the number of a use of a connection. The caller holds the lock.
func (l *limitedListener) next() uint64 {
	l.uses++
	return l.uses
}

// follow notes whether a connection is in use. It is the ConnState of the server.
func (l *limitedListener) follow(conn net.Conn, state http.ConnState) {
	c, ours := conn.(*limitedConn)
	if !ours {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.serving, c.used = state == http.StateActive, l.next()
}

// clientOf returns the IP address at the other end of a connection.
func clientOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}

type limitedConn struct {
	net.Conn
	client   string
	listener *limitedListener
	// serving is set from the first byte of a request to the end of the answer. used
	// numbers the last change of it.
	serving bool
	used    uint64
}

// rank orders the connections of a client: the idle ones before those in use, and the
// least recently used first.
func (c *limitedConn) rank() uint64 {
	if c.serving {
		return c.used + math.MaxUint64/2
	}
	return c.used
}

// Close closes the connection, which does not count any more.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
