// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

func TestMigrationWhileTheDevicePluginsPodsRunOn(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "plugin-beside")
	devices, err := cluster.Devices(t.Context())
	must(t, err)
	uuids := map[string]string{}
	for name, device := range devices {
		uuids[*device.Attributes["uuid"].StringValue] = name
	}
	ownDevicePlugins(t)
	plugin := startDevicePlugin(t, slices.Sorted(maps.Keys(uuids)))
	inUse := func(what string, want ...string) {
		t.Helper()
		must(t, harness.Until(t.Context(), time.Minute, func(ctx context.Context) (bool, string, error) {
			got, err := taintedInUse(ctx)
			return slices.Equal(got, want), fmt.Sprintf("%s: %v are in use, want %v", what, got, want), err
		}))
	}
	must(t, harness.Until(t.Context(), time.Minute, func(ctx context.Context) (bool, string, error) {
		n, err := allocatable(ctx, "nvidia.com/gpu")
		return n == int64(4*len(uuids)), fmt.Sprintf("the node has %d nvidia.com/gpu", n), err
	}))

	apply(t, ns, pod("legacy", "", "nvidia.com/gpu: 1"))
	ready(t, ns, "legacy")
	if len(plugin.gave()) != 1 {
		t.Fatalf("the device plugin gave %v, want one GPU: the pod was served by a claim", plugin.gave())
	}
	uuid, _, _ := strings.Cut(plugin.gave()[0], "::")
	allocated := uuids[uuid]
	inUse("with a pod of the plugin", allocated)

	selected := fmt.Sprintf(`selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].uuid == '%s'"}}]`, uuid)
	apply(t, ns, claim("waits", selected, "")+pod("waits", "waits", ""))
	_, err = cluster.Unschedulable(t.Context(), ns, "waits")
	must(t, err)

	// Who tolerates the taint comes as far as the node.
	apply(t, ns, claim("insists", selected+"\ntolerations: [{key: gpu.nvidia.com/in-use, operator: Exists}]", "")+pod("insists", "insists", ""))
	event, err := cluster.WaitEvent(t.Context(), ns, "insists", "a device plugin of this node has given it")
	must(t, err)
	log, err := agent.Log(t.Context())
	must(t, err)
	// Which pod has it is for administrators.
	if legacy := ns + "/legacy"; strings.Contains(event, legacy) || !strings.Contains(log, legacy) {
		t.Errorf("the event %q names pod %s, or the agent's log does not", event, legacy)
	}
	remove(t, ns, "insists")
	_, err = cluster.Kubectl(t.Context(), "delete", "resourceclaim", "-n", ns, "insists")
	must(t, err)

	// The plugin goes; its pod has its GPU still, and pods like it get others.
	plugin.stop()
	must(t, harness.Until(t.Context(), time.Minute, func(ctx context.Context) (bool, string, error) {
		n, err := allocatable(ctx, "nvidia.com/gpu")
		return n == 0, fmt.Sprintf("the node has %d nvidia.com/gpu", n), err
	}))
	apply(t, ns, pod("moved", "", "nvidia.com/gpu: 7"))
	ready(t, ns, "moved")
	rows, err := cluster.Report(t.Context(), ns)
	must(t, err)
	moved := 0
	for _, row := range rows {
		if row.Pod == "moved" {
			moved++
			if row.UUID == uuid {
				t.Errorf("a claim was given %s, which %s/legacy has", row.Device, ns)
			}
		}
	}
	if moved != 7 {
		t.Errorf("the pod has %d GPUs by a claim, want seven", moved)
	}
	inUse("after the plugin", allocated)
	remove(t, ns, "legacy")
	inUse("after its pod")
	ready(t, ns, "waits")
}

// ownDevicePlugins has the cluster's kubelet serve device plugins. All kubelets of a
// machine use one path. The last one to start owns it: it empties the folder and then
// creates its socket.
func ownDevicePlugins(t *testing.T) {
	t.Helper()
	must(t, os.RemoveAll(deviceplugin.KubeletSocket))
	must(t, cluster.RestartKubelet(t.Context()))
	must(t, harness.Until(t.Context(), time.Minute, func(context.Context) (bool, string, error) {
		_, err := os.Stat(deviceplugin.KubeletSocket)
		return err == nil, "the kubelet serves no device plugins", nil
	}))
}

// devicePlugin allocates GPUs by their UUIDs in four replicas each, as NVIDIA's
// device plugin does with time-slicing.
type devicePlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	uuids []string
	stop  func()
	ended chan struct{}

	mu    sync.Mutex
	given []string
}

func (p *devicePlugin) gave() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.given)
}

// startDevicePlugin registers the plugin with the kubelet, until the test ends or
// it is stopped.
func startDevicePlugin(t *testing.T, uuids []string) *devicePlugin {
	t.Helper()
	p := &devicePlugin{uuids: uuids, ended: make(chan struct{})}
	socket := filepath.Join(deviceplugin.DevicePluginPath, cluster.Name+"-nvidia.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	p.stop = sync.OnceFunc(func() {
		close(p.ended)
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	connection, err := grpc.NewClient("unix:"+deviceplugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	_, err = deviceplugin.NewRegistrationClient(connection).Register(t.Context(), &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: filepath.Base(socket), ResourceName: "nvidia.com/gpu",
	})
	must(t, err)
	must(t, connection.Close())
	return p
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	response := &deviceplugin.ListAndWatchResponse{}
	for _, uuid := range p.uuids {
		for replica := range 4 {
			response.Devices = append(response.Devices, &deviceplugin.Device{ID: fmt.Sprintf("%s::%d", uuid, replica), Health: deviceplugin.Healthy})
		}
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *devicePlugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	response := &deviceplugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		p.given = append(p.given, container.DevicesIds...)
		response.ContainerResponses = append(response.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}
