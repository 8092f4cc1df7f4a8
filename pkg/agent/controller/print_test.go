// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestSlicesAreWhatTheSliceControllerWrites(t *testing.T) {
	var node gpu.Node
	for i := range 65 {
		node.GPUs = append(node.GPUs, gpu.GPU{Address: gpu.PCIAddress{Bus: uint8(i)}, MemoryBytes: 80 << 30})
	}
	c := catalog.New(catalog.Settings{Pool: "node-1"}, catalog.NodeConfig{Offer: "share"}, catalog.Restrictions{})
	resources := c.Resources(node, nil)
	written, err := controller.Slices(t.Context(), "gpu.nvidia.com", "node-1", resources)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := controller.WriteList(&text, written); err != nil {
		t.Fatal(err)
	}

	// Read back as kubectl would.
	var list corev1.List
	if err := json.Unmarshal(text.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "List" || list.APIVersion != "v1" || len(list.Items) != 2 {
		t.Fatalf("a %s of %s with %d items, want a List of v1 with 2", list.Kind, list.APIVersion, len(list.Items))
	}
	for i, name := range []string{"00000-gpu.nvidia.com-node-1-xxxxx", "00001-gpu.nvidia.com-node-1-xxxxx"} {
		var slice resourceapi.ResourceSlice
		decoder := json.NewDecoder(bytes.NewReader(list.Items[i].Raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&slice); err != nil {
			t.Fatal(err)
		}
		if slice.Kind != "ResourceSlice" || slice.APIVersion != "resource.k8s.io/v1" || slice.Name != name {
			t.Errorf("item %d is %s %s %q", i, slice.APIVersion, slice.Kind, slice.Name)
		}
		if diff := cmp.Diff(resourceapi.ResourcePool{Name: "node-1", Generation: 1, ResourceSliceCount: 2}, slice.Spec.Pool); diff != "" {
			t.Errorf("pool (-want +got):\n%s", diff)
		}
		if slice.Spec.Driver != "gpu.nvidia.com" || slice.Spec.NodeName == nil || *slice.Spec.NodeName != "node-1" {
			t.Errorf("slice of driver %q and node %v", slice.Spec.Driver, slice.Spec.NodeName)
		}
		if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].Kind != "Node" || slice.OwnerReferences[0].Name != "node-1" {
			t.Errorf("owners %v, want the node", slice.OwnerReferences)
		}
		if diff := cmp.Diff(resources.Pools["node-1"].Slices[i].Devices, slice.Spec.Devices); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	}
}

func TestSlicesOfANodeWithALongNameAreShortenedAsTheAPIServerDoes(t *testing.T) {
	node := strings.Repeat("n", 63)
	written, err := controller.Slices(t.Context(), "gpu.nvidia.com", node, catalog.New(catalog.Settings{Pool: node}, catalog.NodeConfig{Offer: ""}, catalog.Restrictions{}).Resources(gpu.Node{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := "00000-gpu.nvidia.com-" + strings.Repeat("n", 37) + "xxxxx"; len(written) != 1 || written[0].Name != want {
		t.Errorf("got %v, want one slice named %s", written, want)
	}
}
