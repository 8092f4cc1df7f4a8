// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Upstream's controller adopts the first slices, so it must not find a difference.
func TestUpstreamsControllerCreatesTheSameFirstSlices(t *testing.T) {
	var node gpu.Node
	for i := range 65 {
		node.GPUs = append(node.GPUs, gpu.GPU{Address: gpu.PCIAddress{Bus: uint8(i)}, MemoryBytes: 80 << 30})
	}
	resources := catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{
		Offer: "share,timeslice", Shares: catalog.ShareOffer{Units: map[kind.Kind]int{kind.TimeSlice: 4}},
	}}).Resources(node, nil)
	created, client := make(chan resourceapi.ResourceSlice, 100), fake.NewClientset()
	client.PrependReactor("create", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		slice := a.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		created <- *slice.DeepCopy()
		slice.Name = slice.GenerateName + "xxxxx" // as the API server does
		return false, nil, nil
	})
	upstream, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: "gpu.nvidia.com", KubeClient: client, Resources: &resources,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "uid"},
	})
	must(t, err)
	defer upstream.Stop()
	var want []resourceapi.ResourceSlice
	for range resources.Pools["node-1"].Slices {
		want = append(want, <-created)
	}
	slices.SortFunc(want, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.GenerateName, b.GenerateName) })
	if len(want) < 4 || want[len(want)-1].Spec.SharedCounters == nil {
		t.Fatalf("%d slices, want several of devices and some of counters", len(want))
	}
	require.Same(t, "slices", want, catalog.SlicesOf(resources, "gpu.nvidia.com", "node-1", "uid"))
}

func TestSlicesOfANodeWithALongNameAreShortenedAsTheAPIServerDoes(t *testing.T) {
	node := strings.Repeat("n", 63)
	written := catalog.PrintedSlices("gpu.nvidia.com", node, catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: node}}).Resources(gpu.Node{}, nil))
	if want := "00000-gpu.nvidia.com-" + strings.Repeat("n", 37) + "xxxxx"; len(written) != 1 || written[0].Name != want {
		t.Errorf("got %v, want one slice named %s", written, want)
	}
}
