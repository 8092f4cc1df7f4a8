// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestWhoHasWhat(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share", "b=dgx-a100 mig", "c=t4 timeslice")
	w.Hold("a", "whole", "")
	w.Hold("a", "half", "class=mps.nvidia.com memory=40Gi compute=50")
	w.Hold("a", "little", "class=mps.nvidia.com memory=4Gi")
	w.Hold("b", "part", "class=mig-1g.10gb")
	w.Hold("c", "slot", "class=timeslice.nvidia.com")
	var got []string
	for _, node := range w.Fleet().Nodes() {
		for _, g := range node.GPUs {
			if g.Mode == fleet.ModeFree {
				continue
			}
			line := fmt.Sprintf("%s %s %s %s/%s %d/%d", node.Name, g.Name, g.Mode, &g.Memory.Promised, &g.Memory.Total, g.Compute.Promised, g.Compute.Total)
			for _, d := range g.Devices {
				for _, h := range d.Holders {
					line += fmt.Sprintf(" %s:%s", h.Claim.Name, h.Pods[0].Name)
				}
			}
			got = append(got, line)
		}
	}
	want := []string{
		"a gpu-1b-00 whole 81008Mi/81008Mi 100/100 whole:whole",
		"a gpu-43-00 shared 44Gi/81008Mi 50/100 half:half little:little",
		"b gpu-4e-00 mig 9856Mi/80Gi 0/100 part:part",
		"c gpu-af-00 timeslice 0/15Gi 0/100 slot:slot",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs in use (-want +got):\n%s", diff)
	}
}

// Slices of other drivers and devices for all nodes change nothing for this driver's nodes.
// Neither do claims for devices that are no longer published.
func TestOtherObjects(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "held", "memory=5Gi")
	w.Hold("a", "elsewhere", "memory=5Gi")
	elsewhere := w.Claims[1].Status.Allocation.Devices.Results
	elsewhere[0].Device = "gpu-05-00"
	everywhere := true
	w.Slices = append(w.Slices,
		&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: "nic.example.com", AllNodes: &everywhere, Pool: resourceapi.ResourcePool{Name: "nics", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "nic-0"}, {Name: "nic-1"}},
		}},
		// An older generation of the same pool, which is about to be removed.
		&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: &w.Nodes[0].Name, Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-99-00"}},
		}},
	)
	w.Claims = append(w.Claims, &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "nic.example.com", Pool: "nics", Device: "nic-0"}}},
	}}})
	nodes := w.Fleet().Nodes()
	if incomplete := w.Fleet().IncompleteNodes(); len(nodes) != 1 || len(incomplete) > 0 {
		t.Fatalf("got %+v, incomplete: %q", nodes, incomplete)
	}
	var got []string
	for _, g := range nodes[0].GPUs {
		got = append(got, fmt.Sprintf("%s %s %d", g.Name, g.Mode, g.Claims()))
	}
	want := []string{"gpu-05-00 shared 1", "gpu-18-00 shared 1", "gpu-3b-00 free 0", "gpu-86-00 free 0", "gpu-af-00 free 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, fleettest.Claim("new", "count=3"))
	require.NoError(t, err)
	if len(all) != 1 || !all[0].Fits() {
		t.Errorf("got %+v, want that three free GPUs fit", all)
	}
}

// A scheduler without the feature refuses slices with lists in attributes.
func TestListsInAttributesAreAFeature(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	if fleet.FeaturesOf(w.Objects).ListTypeAttributes {
		t.Error("without lists: the feature is on")
	}
	w.Slices[0].Spec.Devices[1].Attributes["resource.kubernetes.io/numaNode"] = resourceapi.DeviceAttribute{IntValues: []int64{0, 1}}
	if !fleet.FeaturesOf(w.Objects).ListTypeAttributes {
		t.Error("with a list: the feature is off")
	}
	if found, err := w.Fleet().Fit(t.Context(), "a", fleettest.Claim("new", "count=4")); err != nil || found == nil {
		t.Errorf("got %v, %v", found, err)
	}
}

// A user waits for the verdict of a whole fleet.
func BenchmarkVerdictsOfAThousandNodes(b *testing.B) {
	for _, offer := range []string{"share", "share.mig"} {
		b.Run(offer, func(b *testing.B) {
			w := fleettest.New(b, "node-0=dgx-h100 "+offer)
			w.Hold("node-0", "all", "count=8")
			w.Repeat(1000)
			f := w.Fleet()
			for b.Loop() {
				all, err := f.NewSearch(0).Verdicts(b.Context(), nil, fleettest.Claim("new", "class=mps.nvidia.com memory=10Gi"))
				require.NoError(b, err)
				if len(all) != 1000 || all[0].Fits() {
					b.Fatalf("%d verdicts, fits: %t", len(all), all[0].Fits())
				}
			}
		})
	}
}
