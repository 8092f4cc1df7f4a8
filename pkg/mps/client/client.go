// SPDX-License-Identifier: Apache-2.0

// Package client calls gpu-mps-supervisor, which runs the MPS control daemons of a
// node. The node agent links this package and not the supervisor.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// Deadlines of calls whose context has no earlier one. To start or stop a daemon, the
// supervisor waits for another process.
const (
	ensureTimeout = 30 * time.Second // more than the supervisor's MaxStartTimeout
	stopTimeout   = 15 * time.Second
	listTimeout   = 10 * time.Second
)

// Client calls the supervisor on its unix socket, with a connection for each call. Its
// errors wrap the sentinels of package gpu: [gpu.ErrNotReady] if the supervisor is away or a
// daemon does not run, and [gpu.ErrTimeout] if one does not answer in time. Both may succeed
// later.
type Client struct {
	socket string
	http   http.Client
}

// New returns a client of the supervisor on the unix socket. The supervisor need not
// be there yet.
func New(socket string) *Client {
	return NewOver(socket, func(ctx context.Context, socket string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
}

// NewOver is New with another way to the socket.
func NewOver(socket string, dial func(ctx context.Context, socket string) (net.Conn, error)) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) }
	return &Client{socket: socket, http: http.Client{Transport: &http.Transport{DialContext: connect, DisableKeepAlives: true}}}
}

// EnsureMPS starts the daemon and waits until it answers. If the daemon runs, EnsureMPS
// changes its ceilings or namespaces, also for new clients of its running servers. It
// changes nothing if the daemon already has these settings.
func (c *Client) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (dirs gpu.MPSDirs, err error) {
	if err := c.call(ctx, ensureTimeout, mpsv1.PathEnsure, d, &dirs); err != nil {
		return gpu.MPSDirs{}, fmt.Errorf("start MPS on %s: %w", d.Name, err)
	}
	return dirs, nil
}

// StopMPS ends the daemon with its servers and removes its folders. It succeeds if the
// daemon does not exist.
func (c *Client) StopMPS(ctx context.Context, name string) error {
	if err := c.call(ctx, stopTimeout, mpsv1.PathStop, name, nil); err != nil {
		return fmt.Errorf("stop MPS on %s: %w", name, err)
	}
	return nil
}

// MPSDaemons returns the status of every daemon, sorted by name.
func (c *Client) MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error) { return c.list(ctx, true) }

// MPSStates is [Client.MPSDaemons] without the servers of the daemons. It waits for no daemon.
func (c *Client) MPSStates(ctx context.Context) ([]gpu.MPSStatus, error) { return c.list(ctx, false) }

func (c *Client) list(ctx context.Context, servers bool) ([]gpu.MPSStatus, error) {
	var daemons []gpu.MPSStatus
	if err := c.call(ctx, listTimeout, mpsv1.PathList, servers, &daemons); err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	for i, d := range daemons {
		if d.State != gpu.MPSReady && d.State != gpu.MPSStarting {
			daemons[i].State = gpu.MPSFailed // or one of a newer release: it may not be ready
		}
	}
	return daemons, nil
}

// MultiUser reports whether the daemons serve clients of several users at a time. It
// waits for no daemon.
func (c *Client) MultiUser(ctx context.Context) (bool, error) {
	return c.setting(ctx, mpsv1.PathMultiUser)
}

// Namespaces reports whether the node's driver lets daemons have namespaces.
func (c *Client) Namespaces(ctx context.Context) (bool, error) {
	return c.setting(ctx, mpsv1.PathNamespaces)
}

func (c *Client) setting(ctx context.Context, path string) (set bool, err error) {
	if err := c.call(ctx, listTimeout, path, nil, &set); err != nil {
		return false, fmt.Errorf("read the settings of MPS: %w", err)
	}
	return set, nil
}

// call sends a request and decodes its response.
func (c *Client) call(ctx context.Context, timeout time.Duration, path string, request, response any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gpu-mps-supervisor"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	received, err := c.http.Do(r)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	defer func() { _ = received.Body.Close() }()
	body, err := io.ReadAll(http.MaxBytesReader(nil, received.Body, mpsv1.MaxBytes))
	switch {
	case err != nil:
		return c.unanswered(ctx, err)
	case received.StatusCode != http.StatusOK:
		return mpsv1.DecodeError(body)
	case response == nil:
		return nil
	}
	return json.Unmarshal(body, response)
}

// unanswered returns the error of a call without a response.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which means nothing on a unix socket
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: gpu-mps-supervisor has not answered in time on %s; see the log of its pod on this node (%s)", gpu.ErrTimeout, c.socket, err.Error())
	}
	return fmt.Errorf("%w: gpu-mps-supervisor does not answer on %s; see whether its pod runs on this node (%s)", gpu.ErrNotReady, c.socket, err.Error())
}
