// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// together asks for MIG devices of one GPU, a profile each.
func together(profiles ...string) resourceapi.DeviceClaim {
	var claim resourceapi.DeviceClaim
	for i, profile := range profiles {
		request := mig(profile).Requests[0]
		request.Name = fmt.Sprintf("mig-%d", i)
		claim.Requests = append(claim.Requests, request)
	}
	parent := resourceapi.FullyQualifiedName("gpu.nvidia.com/parentUUID")
	claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &parent}}
	return claim
}

func mig(profile string) resourceapi.DeviceClaim {
	return claim("class=mig profile=" + profile)
}

func TestTheSchedulerCutsGPUs(t *testing.T) {
	t.Parallel()
	lastOne := cutting(catalog.MIGProfiles{})
	lastOne.MIG.GPUs = 1
	tainted := first(t, 1, "dgx-h100")
	tainted.GPUs[0].MIG.Enabled = true
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		claims  []resourceapi.DeviceClaim
		want    string
	}{
		"whole GPUs and parts come from opposite ends": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 3, "dgx-h100"),
			claims: []resourceapi.DeviceClaim{mig("3g.40gb"), claim(""), mig("1g.10gb"), claim(""), claim("")},
			want:   "a 52-00-mig-3g-40gb-0 40448Mi\nb 1b-00 81008Mi\nc 52-00-mig-1g-10gb-4 9984Mi\nd 43-00 81008Mi\ne does not fit",
		},
		"a GPU takes a mix and then no more": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 1, "dgx-h100"),
			claims: []resourceapi.DeviceClaim{together("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"), mig("1g.10gb"), claim(""), claim("memory=1Gi")},
			want:   "a 1b-00-mig-1g-10gb-0 9984Mi 1b-00-mig-1g-10gb-1 9984Mi 1b-00-mig-2g-20gb-2 20096Mi 1b-00-mig-3g-40gb-4 40448Mi\nb does not fit\nc does not fit\nd does not fit",
		},
		"a share keeps parts out": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 1, "dgx-h100"),
			claims: []resourceapi.DeviceClaim{claim("memory=2Gi"), mig("1g.10gb"), claim("memory=2Gi")},
			want:   "a 1b-00 2Gi\nb does not fit\nc 1b-00 2Gi",
		},
		"only the GPUs that are offered are cut": {
			catalog: lastOne, node: first(t, 2, "dgx-h100"),
			claims: []resourceapi.DeviceClaim{mig("7g.80gb"), mig("1g.10gb"), claim("")},
			want:   "a 43-00-mig-7g-80gb-0 81152Mi\nb does not fit\nc 1b-00 81008Mi",
		},
		"one GPU with the media engine": {
			catalog: cutting(catalog.MIGProfiles{All: true}), node: first(t, 1, "dgx-h100"),
			claims: []resourceapi.DeviceClaim{mig("1g.10gb+me"), mig("1g.10gb+me"), mig("1g.20gb")},
			want:   "a 1b-00-mig-1g-10gb-me-0 9984Mi\nb does not fit\nc 1b-00-mig-1g-20gb-2 20096Mi",
		},
		"a GPU in MIG mode of an administrator's is given in parts alone": {
			catalog: cutting(catalog.MIGProfiles{}), node: tainted,
			claims: []resourceapi.DeviceClaim{claim(""), mig("2g.20gb")},
			want:   "a does not fit\nb 1b-00-mig-2g-20gb-0 20096Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := allocateAll(t, schedulable(t, tc.catalog, tc.node, nil), tc.claims)
			require.Same(t, "allocations", tc.want, got)
		})
	}
}
