// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

type quantities = map[resourceapi.QualifiedName]resource.Quantity

func of(memory, compute string) quantities {
	return quantities{"memory": resource.MustParse(memory), "compute": resource.MustParse(compute)}
}

func TestRoundedUp(t *testing.T) {
	for name, c := range map[string]struct {
		wants, has quantities
		want       []string
	}{
		"exact":                       {of("4Gi", "20"), of("4Gi", "20"), nil},
		"more memory":                 {of("512Mi", "20"), of("1Gi", "20"), []string{"512Mi of memory, and holds 1Gi"}},
		"more of both":                {of("512Mi", "1"), of("1Gi", "2"), []string{"1 of compute, and holds 2", "512Mi of memory, and holds 1Gi"}},
		"to whole Mi only":            {of("20G", "20"), of("19074Mi", "20"), nil},
		"without a request of memory": {quantities{}, of("80Gi", "100"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			capacity := &resourceapi.CapacityRequirements{Requests: c.wants}
			claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{Capacity: capacity}},
				{Name: "two", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a"}, {Name: "b", Capacity: capacity}}},
			}}}}
			claim.Status.Allocation = &resourceapi.AllocationResult{}
			for request, want := range map[string][]string{"one": c.want, "two/b": c.want, "two/a": nil, "none": nil} {
				claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Request: request, ConsumedCapacity: c.has}}
				findings := (&Cluster{}).rounded(claim)
				require.Same(t, request, want, fleet.Each(findings, func(f Finding) string { return strings.TrimPrefix(f.Found, "request "+request+" has ") }))
			}
		})
	}
}
