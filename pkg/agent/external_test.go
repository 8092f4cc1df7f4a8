// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
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

func TestAGPUThatADevicePluginGaveAwaySinceItWasScannedIsNotPrepared(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-43-00")
	n := newNode(t, claim)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", n.PodResources)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, server := &podLister{}, grpc.NewServer()
	kubelet.give("nvidia0")
	podresourcesv1.RegisterPodResourcesListerServer(server, kubelet)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	a := n.start(t)
	n.published(t)

	kubelet.give("nvidia0", "nvidia1")
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.claims.Prepare(limited, claim); err == nil || !strings.Contains(err.Error(), "device plugin") {
		t.Errorf("error %v, want it to say that a device plugin has given the GPU away", err)
	}
}
