// SPDX-License-Identifier: Apache-2.0

// Package client calls gpu-mps-supervisor, which runs the MPS control daemons of a
// node. The node agent links this package and not the supervisor.
package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

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

// idleTimeout is the time after the last call at which the connection closes. gRPC's
// own is half an hour, in which it would try to reach a supervisor that is away.
const idleTimeout = 5 * time.Second

// Client calls the supervisor on its unix socket. It connects with the first call, and
// again after the supervisor was away. Its errors wrap the sentinels of package gpu:
// [gpu.ErrNotReady] if the supervisor is away or a daemon does not run, and
// [gpu.ErrTimeout] if one does not answer in time. Both may succeed later.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	rpc    mpsv1.SupervisorClient
}

// New returns a client of the supervisor on the unix socket. The supervisor need not
// be there yet.
func New(socket string) (*Client, error) { return newClient(socket, idleTimeout) }

func newClient(socket string, idle time.Duration) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is root's
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idle),
		// gRPC's own back-off is up to two minutes, which a pod that needs the
		// supervisor would wait.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("MPS supervisor on %s: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, rpc: mpsv1.NewSupervisorClient(conn)}, nil
}

// Close closes the connection. The daemons keep running.
func (c *Client) Close() error { return c.conn.Close() }

// EnsureMPS starts the daemon and waits until it answers. If the daemon runs, EnsureMPS
// changes its ceilings or namespaces, also for new clients of its running servers. It
// changes nothing if the daemon already has these settings.
func (c *Client) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	response, err := c.rpc.Ensure(ctx, &mpsv1.EnsureRequest{Daemon: mpsv1.EncodeDaemon(d)})
	if err != nil {
		return gpu.MPSDirs{}, fmt.Errorf("start MPS on %s: %w", d.Name, callError(c.socket, err))
	}
	return gpu.MPSDirs{Pipe: response.GetPipeDir(), Shm: response.GetShmDir()}, nil
}

// StopMPS ends the daemon with its servers and removes its folders. It succeeds if the
// daemon does not exist.
func (c *Client) StopMPS(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := c.rpc.Stop(ctx, &mpsv1.StopRequest{Name: name}); err != nil {
		return fmt.Errorf("stop MPS on %s: %w", name, callError(c.socket, err))
	}
	return nil
}

// MPSDaemons returns the status of every daemon, sorted by name.
func (c *Client) MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error) { return c.list(ctx, true) }

// MPSStates is [Client.MPSDaemons] without the servers of the daemons. It waits for no daemon.
func (c *Client) MPSStates(ctx context.Context) ([]gpu.MPSStatus, error) { return c.list(ctx, false) }

func (c *Client) list(ctx context.Context, servers bool) ([]gpu.MPSStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := c.rpc.List(ctx, &mpsv1.ListRequest{WithoutServers: !servers})
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", callError(c.socket, err))
	}
	var daemons []gpu.MPSStatus
	for _, message := range response.GetDaemons() {
		daemons = append(daemons, mpsv1.DecodeStatus(message))
	}
	return daemons, nil
}

// MultiUser reports whether the daemons serve clients of several users at a time. It
// waits for no daemon.
func (c *Client) MultiUser(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := c.rpc.Settings(ctx, &mpsv1.SettingsRequest{})
	if err != nil {
		return false, fmt.Errorf("read the settings of MPS: %w", callError(c.socket, err))
	}
	return response.GetMultiUser(), nil
}

// Namespaces reports whether the node's driver lets daemons have namespaces.
func (c *Client) Namespaces(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := c.rpc.Settings(ctx, &mpsv1.SettingsRequest{Namespaces: true})
	if err != nil {
		return false, fmt.Errorf("read the settings of MPS: %w", callError(c.socket, err))
	}
	return response.GetNamespaces(), nil
}
