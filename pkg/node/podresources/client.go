// SPDX-License-Identifier: Apache-2.0

package podresources

import (
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

// DefaultSocket is the kubelet's socket unless its root folder is another one.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// timeout of a call, which the kubelet answers from memory.
	timeout = 2 * time.Second
	// idleTimeout is the time after the last call at which the connection closes:
	// most nodes have no device plugin and need one call.
	idleTimeout = 5 * time.Second
	// maxMessage is the limit that the kubelet's other clients have for the pods of
	// a node.
	maxMessage = 16 << 20
)

// Client calls the kubelet. It connects with the first call, and again after the
// kubelet was away.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	rpc    podresourcesv1.PodResourcesListerClient
}

// NewClient returns a client of the kubelet on the unix socket. The kubelet need not
// be there yet. The options come after its own.
func NewClient(socket string, options ...grpc.DialOption) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is root's
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// gRPC's own back-off is up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("pod resources of the kubelet on %s: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, rpc: podresourcesv1.NewPodResourcesListerClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// ExternalAllocations returns the GPUs and MIG devices that device plugins have allocated
// to running pods. The order is by device and pod; a device with replicas is listed once
// for each pod. The kubelet leaves out the devices of init containers that end before the
// others start. The error wraps [gpu.ErrNotReady] if the kubelet is away,
// [gpu.ErrPermission], or [gpu.ErrTimeout].
func (c *Client) ExternalAllocations(ctx context.Context) ([]gpu.ExternalAllocation, error) {
	pods, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []gpu.ExternalAllocation
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, devices := range container.GetDevices() {
				if !strings.HasPrefix(devices.GetResourceName(), resourcePrefix) {
					continue
				}
				for _, id := range devices.GetDeviceIds() {
					all = append(all, gpu.ExternalAllocation{Device: device(id), Pod: pod.GetNamespace() + "/" + pod.GetName()})
				}
			}
		}
	}
	slices.SortFunc(all, gpu.CompareExternal)
	return slices.Compact(all), nil
}

// Container is a container of a running pod.
type Container struct {
	Namespace, Pod, Name string
}

// Containers returns the containers of running pods, in no order. The kubelet leaves out init
// containers that end before the others start. It returns the errors of
// [Client.ExternalAllocations].
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	pods, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []Container
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			all = append(all, Container{pod.GetNamespace(), pod.GetName(), container.GetName()})
		}
	}
	return all, nil
}

// ContainerClaim is a claim that a container uses.
type ContainerClaim struct {
	// Namespace of both the pod and the claim.
	Namespace, Pod, Container, Claim string
}

// Claims returns the claims that the containers of running pods use, in no order. It
// returns the errors of [Client.ExternalAllocations].
func (c *Client) Claims(ctx context.Context) ([]ContainerClaim, error) {
	pods, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []ContainerClaim
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, resource := range container.GetDynamicResources() {
				all = append(all, ContainerClaim{pod.GetNamespace(), pod.GetName(), container.GetName(), resource.GetClaimName()})
			}
		}
	}
	return all, nil
}

func (c *Client) list(ctx context.Context) ([]*podresourcesv1.PodResources, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := c.rpc.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet on %s for the devices of pods: %w: %w", c.socket, sentinel(err), err)
	}
	return response.GetPodResources(), nil
}

// resourcePrefix is the prefix of all resources of device plugins for NVIDIA's GPUs:
// nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, and the names that an
// administrator gave them.
const resourcePrefix = "nvidia.com/"

// minorID matches the device IDs of GKE's device plugin: "nvidia0" for a GPU,
// "nvidia0/vgpu1" for a time slice, "nvidia0/gi3" for a MIG device.
var minorID = regexp.MustCompile(`^(nvidia[0-9]+)(/.*)?$`)

// device returns the device of a plugin's device ID. NVIDIA's plugin uses UUIDs, and
// appends the number of the replica to them if it shares a device ("GPU-…::3").
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
