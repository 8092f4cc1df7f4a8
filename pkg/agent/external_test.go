// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// podLister is a kubelet that lists the GPUs that a device plugin has allocated to the
// pod team/legacy.
type podLister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	mu   sync.Mutex
	gpus []string
}

func (p *podLister) give(gpus ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gpus = gpus
}

func (p *podLister) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{{
		Namespace: "team", Name: "legacy", Containers: []*podresourcesv1.ContainerResources{{
			Name: "main", Devices: []*podresourcesv1.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: p.gpus}},
		}},
	}}}, nil
}

// withDevicePlugin runs a kubelet with a device plugin that has allocated GPUs, until the test
// ends.
func (n *node) withDevicePlugin(t *testing.T, gpus ...string) *podLister {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", n.PodResources)
	if err != nil {
		t.Fatal(err)
	}
	kubelet := &podLister{}
	kubelet.give(gpus...)
	t.Cleanup(kubelet.serve(t, listener))
	return kubelet
}

// serve serves until stop is called.
func (p *podLister) serve(t *testing.T, listener net.Listener) (stop func()) {
	t.Helper()
	server, served := grpc.NewServer(), make(chan error, 1)
	podresourcesv1.RegisterPodResourcesListerServer(server, p)
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestAGPUThatADevicePluginGaveAwaySinceItWasScannedIsNotPrepared(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-43-00")
	n := newNode(t, claim)
	kubelet := n.withDevicePlugin(t, "nvidia0")
	a := n.start(t)
	n.published(t)

	kubelet.give("nvidia0", "nvidia1")
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.claims.Prepare(limited, claim); err == nil || !strings.Contains(err.Error(), "device plugin") {
		t.Errorf("error %v, want it to say that a device plugin has given the GPU away", err)
	}
}

// After a restart the kubelet and its device plugin know nothing of the claim.
func TestAHeldGPUOfADevicePluginIsAConflictAndTainted(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-43-00")
	n := newNode(t, claim)
	lister := n.withDevicePlugin(t, "nvidia0")
	a := n.start(t)
	n.published(t)
	if _, err := a.claims.Prepare(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if got := a.conflicts(t.Context(), kindtest.Name("gpu-43-00")); len(got) > 0 {
		t.Errorf("conflicts %v before the device plugin allocates the GPU", got)
	}
	lister.give("nvidia0", "nvidia1")
	a.known.inventory.RefreshExternal(t.Context())
	for device, want := range map[string][]report.Conflict{
		"gpu-43-00": {report.ConflictDevicePlugin}, "gpu-43-00-ts": {report.ConflictDevicePlugin}, "gpu-44-00": nil, "node-gpus": nil,
	} {
		if diff := cmp.Diff(want, a.conflicts(t.Context(), kindtest.Name(device))); diff != "" {
			t.Errorf("conflicts of %q (-want +got):\n%s", device, diff)
		}
	}
	n.waitTaint(t, "gpu-43-00", v1alpha1.InUseTaintDevicePlugin)
	lister.give("nvidia0")
	a.known.inventory.RefreshExternal(t.Context())
	if got := a.conflicts(t.Context(), kindtest.Name("gpu-43-00")); len(got) > 0 {
		t.Errorf("conflicts %v after the pod of the device plugin has ended", got)
	}
}

// waitTaint waits until a device is published with a taint of the value.
func (n *node) waitTaint(t *testing.T, device, value string) {
	t.Helper()
	for {
		slices, err := n.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%s has no taint %s: %v", device, value, err)
		}
		for _, slice := range slices.Items {
			for _, d := range slice.Spec.Devices {
				for _, taint := range d.Taints {
					if d.Name == device && taint.Value == value {
						return
					}
				}
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s has no taint %s", device, value)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
