// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/viewers"
	mpsclient "github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
)

// connections are the agent's clients of other programs.
type connections struct {
	// client is for the API server.
	client kubernetes.Interface
	// supervisor runs MPS daemons; nil if the node has none.
	supervisor *mpsclient.Client
	// podResources reads external allocations; nil if they are not read.
	podResources *podresources.Client
	// viewers may read the facts; nil if no user may.
	viewers *viewers.Viewers
}

// connect returns the clients. It sends nothing.
func (c *Config) connect(client kubernetes.Interface) (connections, error) {
	podResources, err := c.openPodResources()
	if err != nil {
		return connections{}, err
	}
	var supervisor *mpsclient.Client
	switch {
	case c.Supervisor != "" && c.network != nil:
		supervisor = mpsclient.NewOver(c.Supervisor, c.network.Dial)
	case c.Supervisor != "":
		supervisor = mpsclient.New(c.Supervisor)
	}
	users, err := c.newViewers(client)
	return connections{client, supervisor, podResources, users}, err
}

// openPodResources returns a client of the kubelet's socket; nil without a socket.
func (c *Config) openPodResources() (*podresources.Client, error) {
	if c.PodResources == "" {
		return nil, nil
	}
	var options []grpc.DialOption
	if c.network != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.network.Dial(ctx, c.PodResources) }))
	}
	client, err := podresources.NewClient(c.PodResources, options...)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-pod-resources: %w", err)
	}
	return client, nil
}

// externalSource returns the source of external allocations. It remembers pods if the agent
// sees their processes. The folder of device plugins is next to that of the kubelet's socket.
func (c *Config) externalSource(client *podresources.Client, consumers attribution.Consumers) inventory.ExternalSource {
	if consumers.Groups == nil {
		return client
	}
	kubelet := filepath.Dir(filepath.Dir(c.PodResources))
	given := podresources.DeviceCheckpoint(filepath.Join(hostRoot, kubelet, "device-plugins", podresources.DeviceCheckpointName))
	return &attribution.External{List: client.ExternalAllocations, Pods: given.Pods, Lives: consumers.Lives}
}

// close ends the connection to the kubelet and the watch of records. No call is under way on
// them.
func (a *agent) close() {
	_ = a.claims.Close() // the manager of claims
	if a.node.podResources != nil {
		_ = a.node.podResources.Close()
	}
}
