package mps

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

// DefaultSocket is where the supervisor listens unless told otherwise.
const DefaultSocket = "/run/gpu-mps-supervisor/supervisor.sock"

// How long a call may take where its context does not say less. Starting and
// stopping wait for another process.
const (
	ensureTimeout = 30 * time.Second // more than MaxStartTimeout
	stopTimeout   = 15 * time.Second
	listTimeout   = 10 * time.Second
)

// idleTimeout after the last call, the connection goes. Where the supervisor is
// away, gRPC would go on trying to connect for half an hour.
const idleTimeout = 5 * time.Second

// Client is the node agent's end of the supervisor's socket. It connects with
// the first call and again whenever the supervisor was away. Its errors wrap
// the sentinels of package gpu: [gpu.ErrNotReady] if the supervisor is away or
// a daemon does not run, [gpu.ErrTimeout] if one does not answer in time, both
// of which may succeed later.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	rpc    mpsv1.SupervisorClient
}

// NewClient is a client of the supervisor on the unix socket. The supervisor
// need not be there yet.
func NewClient(socket string) (*Client, error) { return newClient(socket, idleTimeout) }

func newClient(socket string, idle time.Duration) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is root's
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idle),
		// A supervisor that is back is to be found at once: gRPC would wait up
		// to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("MPS supervisor on %s: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, rpc: mpsv1.NewSupervisorClient(conn)}, nil
}

// Close ends the connection. The daemons run on.
func (c *Client) Close() error { return c.conn.Close() }

// EnsureMPS starts the daemon and waits until it answers, or changes the
// ceilings of the one that runs, also for clients that connect to its running
// servers from now on. The same again changes nothing and is cheap.
func (c *Client) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	response, err := c.rpc.Ensure(ctx, &mpsv1.EnsureRequest{Daemon: daemonToWire(d)})
	if err != nil {
		return gpu.MPSDirs{}, fmt.Errorf("start MPS on %s: %w", d.Name, fromWire(c.socket, err))
	}
	return gpu.MPSDirs{Pipe: response.GetPipeDir(), Shm: response.GetShmDir()}, nil
}

// StopMPS ends the daemon with everything that it started and removes its
// folders. One that is not there is no error.
func (c *Client) StopMPS(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := c.rpc.Stop(ctx, &mpsv1.StopRequest{Name: name}); err != nil {
		return fmt.Errorf("stop MPS on %s: %w", name, fromWire(c.socket, err))
	}
	return nil
}

// MPSDaemons looks at every daemon, sorted by name.
func (c *Client) MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := c.rpc.List(ctx, &mpsv1.ListRequest{})
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", fromWire(c.socket, err))
	}
	var daemons []gpu.MPSStatus
	for _, wire := range response.GetDaemons() {
		daemons = append(daemons, statusFromWire(wire))
	}
	return daemons, nil
}

// MultiUser reports whether the daemons serve clients of all users at a time. It
// waits for no daemon.
func (c *Client) MultiUser(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := c.rpc.Settings(ctx, &mpsv1.SettingsRequest{})
	if err != nil {
		return false, fmt.Errorf("ask for the settings of MPS: %w", fromWire(c.socket, err))
	}
	return response.GetMultiUser(), nil
}
