// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// After a restart the agent must know what to charge, to which class, and whose processes
// they are, without the API server.
func TestAHeldClaimHasItsClassesSlotsAndPods(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	m := w.start()
	c := pieces("c", piece{request: "slots", device: "gpu-00-00-ts"}, piece{request: "any/small", device: "gpu-01-00", memory: "20Gi"})
	c.Status.Allocation.Devices.Results[0].ConsumedCapacity["slots"] = resource.MustParse("3")
	memory := &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("20Gi")}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{
		{Name: "slots", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "timeslice.nvidia.com"}},
		{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "large", DeviceClassName: "gpu.nvidia.com"}, {Name: "small", DeviceClassName: "mps.nvidia.com", Capacity: memory}}},
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "b", UID: "uid-b"}, {Resource: "pods", Name: "a", UID: "uid-a"}}
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	held, err := w.start().Held(once())
	if err != nil || len(held) != 1 {
		t.Fatalf("held %v, %v; want one claim", held, err)
	}
	slots, share := held[0].Devices[0], held[0].Devices[1]
	if slots.Class != "timeslice.nvidia.com" || slots.Terms.Slots != 3 || share.Class != "mps.nvidia.com" || share.Terms.Slots != 0 {
		t.Errorf("3 slots of timeslice.nvidia.com and a share of mps.nvidia.com are %+v %+v and %+v %+v", slots, slots.Terms, share, share.Terms)
	}
	if want := []types.UID{"uid-a", "uid-b"}; !slices.Equal(held[0].Pods, want) {
		t.Errorf("pods %v, want %v", held[0].Pods, want)
	}
}
