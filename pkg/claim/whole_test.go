// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// asking adds requests for the allocated devices to the claim. If memory is set, they
// request that memory. The first request has two alternatives.
func asking(c *resourceapi.ResourceClaim, memory string) *resourceapi.ResourceClaim {
	var capacity *resourceapi.CapacityRequirements
	if memory != "" {
		capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
	}
	for i := range c.Status.Allocation.Devices.Results {
		name := fmt.Sprintf("gpu-%d", i)
		request := resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{Capacity: capacity}}
		if i == 0 {
			request = resourceapi.DeviceRequest{Name: name, FirstAvailable: []resourceapi.DeviceSubRequest{
				{Name: "small", Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}}},
				{Name: "big", Capacity: capacity},
			}}
			c.Status.Allocation.Devices.Results[i].Request = name + "/big"
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, request)
	}
	return c
}

// Switching ECC changes the memory of a GPU and requires a reboot. Pods survive the
// reboot with their earlier allocation.
func TestAClaimForAWholeGPUStaysWholeAfterItsMemoryChanges(t *testing.T) {
	for name, after := range map[string]uint64{"more": 88 << 30, "as much": 80 << 30, "less": 72 << 30} {
		for configured, config := range map[string]string{"without configuration": "", "configured": config("GpuConfig", "")} {
			t.Run(name+", "+configured, func(t *testing.T) {
				w := newShareWorld(t, t.TempDir(), 2)
				whole := asking(pieces("whole", piece{device: "gpu-00-00", memory: "80Gi"}, piece{device: "gpu-01-00", memory: "80Gi", config: config}), "")
				prepare := func() {
					t.Helper()
					m, _ := w.restart(t.Context())
					devices, err := m.Prepare(t.Context(), whole)
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range devices {
						if d.Strategy() != "" {
							t.Errorf("device %s is prepared as a share: %+v", d.Name, d.Terms)
						}
					}
					intruder := asking(pieces("intruder", piece{device: "gpu-01-00", memory: "2Gi"}), "2Gi")
					if _, err := m.Prepare(once(), intruder); !errors.Is(err, gpu.ErrInUse) {
						t.Errorf("a share with it: %v, want %v", err, gpu.ErrInUse)
					}
				}
				prepare()
				w.boot++
				for address, g := range w.gpus {
					g.MemoryBytes = after
					w.gpus[address] = g
				}
				prepare()
			})
		}
	}
}

func TestAClaimForLessThanTheWholeMemoryGetsAShare(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, _ := w.restart(t.Context())
	claim := asking(pieces("share", piece{device: "gpu-00-00", memory: "79Gi"}), "79Gi")
	devices, err := m.Prepare(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if d := devices[0]; d.Terms.Memory() != 79<<30 {
		t.Errorf("device %+v, want a share of 79Gi", d)
	}
}
