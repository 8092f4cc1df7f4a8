package podresources

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// DefaultSocket is where the kubelet serves unless its root folder is another.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// timeout of a call. The kubelet answers from memory.
	timeout = 2 * time.Second
	// idleTimeout after the last call, the connection goes: most nodes have no
	// device plugin and are asked once.
	idleTimeout = 5 * time.Second
	// maxMessage is what kubectl and the kubelet's other clients allow for the
	// pods of a node.
	maxMessage = 16 << 20
)

// Client asks the kubelet. It connects with the first call, and again whenever
// the kubelet was away.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	rpc    podresourcesv1.PodResourcesListerClient
}

// NewClient is a client of the kubelet on the unix socket. The kubelet need not
// be there yet.
func NewClient(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is root's
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A kubelet that is back is to be found at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("pod resources of the kubelet on %s: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, rpc: podresourcesv1.NewPodResourcesListerClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Lent gives the GPUs and MIG devices that running pods have through device
// plugins, ordered by device and pod; devices that plugins share out in
// replicas, once for each pod. Not among them are those of init containers that
// end before the others start, which the kubelet leaves out. The error wraps [gpu.ErrNotReady] if the kubelet
// is away, [gpu.ErrPermission], or [gpu.ErrTimeout].
func (c *Client) Lent(ctx context.Context) ([]gpu.Lent, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := c.rpc.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet on %s for the devices of pods: %w: %w", c.socket, sentinel(err), err)
	}
	var all []gpu.Lent
	for _, pod := range response.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, devices := range container.GetDevices() {
				if !strings.HasPrefix(devices.GetResourceName(), resourcePrefix) {
					continue
				}
				for _, id := range devices.GetDeviceIds() {
					all = append(all, gpu.Lent{Device: device(id), Pod: pod.GetNamespace() + "/" + pod.GetName()})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b gpu.Lent) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pod, b.Pod)) })
	return slices.Compact(all), nil
}

// resourcePrefix is that of all resources of device plugins for NVIDIA's GPUs:
// nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, and what an
// administrator has renamed them to.
const resourcePrefix = "nvidia.com/"

// minorID is how GKE's device plugin names a GPU and what it makes of it:
// "nvidia0", "nvidia0/vgpu1" for a time slice, "nvidia0/gi3" for a MIG device.
var minorID = regexp.MustCompile(`^(nvidia[0-9]+)(/.*)?$`)

// device gives the device that a plugin's ID means. NVIDIA's plugin takes UUIDs,
// with the number of the replica behind them where it shares a device out
// ("GPU-…::3").
func device(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	if m := minorID.FindStringSubmatch(uuid); m != nil {
		return m[1]
	}
	return uuid
}

func sentinel(err error) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return gpu.ErrTimeout
	case codes.PermissionDenied:
		return gpu.ErrPermission
	default:
		return gpu.ErrNotReady
	}
}
