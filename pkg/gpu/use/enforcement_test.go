// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

func TestEnforcement(t *testing.T) {
	const (
		none, cooperative = v1alpha1.EnforcementNone, v1alpha1.EnforcementCooperative
		daemon, driver    = v1alpha1.EnforcementDaemon, v1alpha1.EnforcementDriver
	)
	address := gpu.PCIAddress{Bus: 0x1b}
	whole, slots := kind.Whole(address), kind.Name{Kind: kind.TimeSlice, Address: address}
	part := kind.Partition(address, gpu.Profile{Slices: 1, MemoryGB: 10}, 0)
	limits, namespaces := gpu.GPU{MemoryLimits: true}, use.Conditions{MPSNamespaces: true}
	old, r615 := use.GPU{}, use.GPU{GPU: limits, Conditions: namespaces}
	for name, tc := range map[string]struct {
		gpu             use.GPU
		device          kind.Name
		sharing         use.Sharing
		memory, compute v1alpha1.Enforcement
	}{
		"MPS":                                {old, whole, use.ByMPS, cooperative, cooperative},
		"plain":                              {old, whole, use.Plain, none, none},
		"time slices":                        {old, slots, use.TimeSlices, none, none},
		"MPS, release 615":                   {r615, whole, use.ByMPS, driver, daemon},
		"plain, release 615":                 {r615, whole, use.Plain, driver, none},
		"time slices, release 615":           {r615, slots, use.TimeSlices, driver, none},
		"MPS on a MIG device, release 615":   {r615, part, use.ByMPS, cooperative, cooperative},
		"MPS, memory limits only":            {use.GPU{GPU: limits}, whole, use.ByMPS, driver, cooperative},
		"MPS with namespaces, cgroups of v1": {use.GPU{Conditions: namespaces}, whole, use.ByMPS, cooperative, daemon},
	} {
		t.Run(name, func(t *testing.T) {
			if memory, compute := tc.gpu.Enforcement(tc.device, tc.sharing); memory != tc.memory || compute != tc.compute {
				t.Errorf("memory %s, compute %s; want %s, %s", memory, compute, tc.memory, tc.compute)
			}
		})
	}
}
