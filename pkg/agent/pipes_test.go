// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// pipes is a network of sockets in this process. A goroutine that waits on a socket waits for
// another goroutine and not for the kernel, so the clock of a test can go on.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

func newPipes() *pipes { return &pipes{listeners: map[string]*pipeListener{}} }

func (p *pipes) Listen(_ context.Context, path string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{pipes: p, path: path, calls: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[path] = l
	return l, nil
}

func (p *pipes) Dial(ctx context.Context, path string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[path]
	p.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("connect to %s: %w", path, unix.ENOENT)
	}
	here, there := net.Pipe()
	select {
	case l.calls <- there:
		return here, nil
	case <-l.closed:
		return nil, fmt.Errorf("connect to %s: %w", path, unix.ECONNREFUSED)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type pipeListener struct {
	pipes  *pipes
	path   string
	calls  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.pipes.mu.Lock()
		defer l.pipes.mu.Unlock()
		if l.pipes.listeners[l.path] == l {
			delete(l.pipes.listeners, l.path)
		}
	})
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
