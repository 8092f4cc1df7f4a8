// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// kubelet lists the pods of a test.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	mu   sync.Mutex
	pods []*podresourcesv1.PodResources
	err  error
}

func (k *kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresourcesv1.ListPodResourcesResponse{PodResources: k.pods}, k.err
}

// serve runs the kubelet on the socket until stop is called.
func (k *kubelet) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, k)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return sync.OnceFunc(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func newClient(t *testing.T) (client *podresources.Client, socket string) {
	t.Helper()
	// A socket's path holds 107 bytes, which t.TempDir may exceed.
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // see above
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = filepath.Join(dir, "kubelet.sock")
	client, err = podresources.NewClient(socket)
	must(t, err)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client, socket
}

func pod(name string, devices ...*podresourcesv1.ContainerDevices) *podresourcesv1.PodResources {
	return &podresourcesv1.PodResources{Namespace: "team", Name: name, Containers: []*podresourcesv1.ContainerResources{
		{Name: "sidecar"}, {Name: "main", Devices: devices},
	}}
}

func of(resource string, ids ...string) *podresourcesv1.ContainerDevices {
	return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func TestExternalAllocationsAreTheDevicesThatDevicePluginsAllocated(t *testing.T) {
	const first, second, part = "GPU-5a5f0a9c-1b1c-4c57-8a3e-2b9a8f2f0001", "GPU-5a5f0a9c-1b1c-4c57-8a3e-2b9a8f2f0002", "MIG-5a5f0a9c-1b1c-4c57-8a3e-2b9a8f2f0003"
	claimed := pod("claims")
	claimed.Containers[1].DynamicResources = []*podresourcesv1.DynamicResource{{ClaimName: "gpu", ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "gpu.nvidia.com", DeviceName: "gpu-1b-00"}}}}
	for _, c := range []struct {
		name string
		pods []*podresourcesv1.PodResources
		want []gpu.ExternalAllocation
	}{
		{"no pod has any", nil, nil},
		{"whole GPUs", []*podresourcesv1.PodResources{pod("b", of("nvidia.com/gpu", second)), pod("a", of("nvidia.com/gpu", first))}, []gpu.ExternalAllocation{{Device: first, Pod: "team/a"}, {Device: second, Pod: "team/b"}}},
		{"replicas of a shared GPU", []*podresourcesv1.PodResources{pod("a", of("nvidia.com/gpu.shared", first+"::0", first+"::7")), pod("b", of("nvidia.com/gpu", first+"::3"))}, []gpu.ExternalAllocation{{Device: first, Pod: "team/a"}, {Device: first, Pod: "team/b"}}},
		{"MIG devices, and replicas of them", []*podresourcesv1.PodResources{pod("a", of("nvidia.com/mig-1g.10gb", part)), pod("b", of("nvidia.com/mig-1g.10gb.shared", part+"::1"))}, []gpu.ExternalAllocation{{Device: part, Pod: "team/a"}, {Device: part, Pod: "team/b"}}},
		{"GPUs by their minor number, as on GKE", []*podresourcesv1.PodResources{pod("a", of("nvidia.com/gpu", "nvidia3")), pod("b", of("nvidia.com/gpu", "nvidia4/vgpu1", "nvidia5/gi3"))}, []gpu.ExternalAllocation{{Device: "nvidia3", Pod: "team/a"}, {Device: "nvidia4", Pod: "team/b"}, {Device: "nvidia5", Pod: "team/b"}}},
		{"devices of another vendor", []*podresourcesv1.PodResources{pod("a", of("example.com/nic", first))}, nil},
		{"devices of claims", []*podresourcesv1.PodResources{claimed}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, socket := newClient(t)
			defer (&kubelet{pods: c.pods}).serve(t, socket)()
			got, err := client.ExternalAllocations(t.Context())
			must(t, err)
			require.Same(t, "external allocations", c.want, got)
		})
	}
}

func TestClaimsOfContainers(t *testing.T) {
	dynamic := func(claims ...string) (all []*podresourcesv1.DynamicResource) {
		for _, name := range claims {
			all = append(all, &podresourcesv1.DynamicResource{ClaimName: name, ClaimNamespace: "team"})
		}
		return all
	}
	p := pod("one")
	p.Containers[0].DynamicResources, p.Containers[1].DynamicResources = dynamic("a"), dynamic("a", "b")
	client, socket := newClient(t)
	k := &kubelet{pods: []*podresourcesv1.PodResources{p, pod("other", of("nvidia.com/gpu", "GPU-1"))}}
	stop := k.serve(t, socket)
	got, err := client.Claims(t.Context())
	want := []podresources.ContainerClaim{
		{Namespace: "team", Pod: "one", Container: "sidecar", Claim: "a"},
		{Namespace: "team", Pod: "one", Container: "main", Claim: "a"},
		{Namespace: "team", Pod: "one", Container: "main", Claim: "b"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	containers, err := client.Containers(t.Context())
	all := []podresources.Container{
		{Namespace: "team", Pod: "one", Name: "sidecar"}, {Namespace: "team", Pod: "one", Name: "main"},
		{Namespace: "team", Pod: "other", Name: "sidecar"}, {Namespace: "team", Pod: "other", Name: "main"},
	}
	if diff := cmp.Diff(all, containers); err != nil || diff != "" {
		t.Errorf("containers, %v (-want +got):\n%s", err, diff)
	}
	stop()
	_, err = client.Containers(t.Context())
	require.Error(t, "containers without a kubelet", err, gpu.ErrNotReady)
	_, err = client.Claims(t.Context())
	require.Error(t, "without a kubelet", err, gpu.ErrNotReady)
}

func TestExternalAllocationsReturnWhyTheKubeletDoesNotAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"too many calls", status.Error(codes.ResourceExhausted, "rate limit"), gpu.ErrNotReady},
		{"without permission", status.Error(codes.PermissionDenied, "no"), gpu.ErrPermission},
		{"too slow", status.Error(codes.DeadlineExceeded, "slow"), gpu.ErrTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, socket := newClient(t)
			defer (&kubelet{err: c.err}).serve(t, socket)()
			_, err := client.ExternalAllocations(t.Context())
			require.Error(t, "ExternalAllocations", err, c.want)
		})
	}
	t.Run("after a restart", func(t *testing.T) {
		client, socket := newClient(t)
		k := &kubelet{pods: []*podresourcesv1.PodResources{pod("a", of("nvidia.com/gpu", "GPU-1"))}}
		_, err := client.ExternalAllocations(t.Context())
		require.Error(t, "before the kubelet is there", err, gpu.ErrNotReady)
		for range 2 {
			stop := k.serve(t, socket)
			var allocations []gpu.ExternalAllocation
			err := errors.New("not called yet")
			for err != nil && t.Context().Err() == nil {
				allocations, err = client.ExternalAllocations(t.Context())
			}
			stop()
			if len(allocations) != 1 {
				t.Errorf("%v, want one GPU", allocations)
			}
		}
	})
}

// silentKubelet answers no call before its client gives up.
type silentKubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
}

func (silentKubelet) List(ctx context.Context, _ *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestExternalAllocationsGiveUpOnAKubeletThatHangs(t *testing.T) {
	client, socket := newClient(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, silentKubelet{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	_, err = client.ExternalAllocations(t.Context())
	require.Error(t, "a kubelet that does not answer", err, gpu.ErrTimeout)
}

var must = require.NoError
