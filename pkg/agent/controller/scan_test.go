// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// Claims start and end during a scan. A MIG device that a claim held at the beginning
// or at the end of a scan belongs to the claim.
func TestAMIGDeviceOfAClaimThatChangesDuringAScanBelongsToTheClaim(t *testing.T) {
	theirs := catalog.Held{kindtest.Name("gpu-01-00-mig-3g-40gb-0"): false}
	for name, c := range map[string]struct{ before, after catalog.Held }{
		"it comes": {nil, theirs},
		"it goes":  {theirs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hw := &hardware{node: halves(2)}
				node := startIn(t, hw, c.before, map[string]string{v1alpha1.LabelOffer: "share.mig"})
				hw.change(func(h *hardware) { h.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0)} })
				hw.hang(1) // the scan waits for it
				node.Inventory.RequestScan()
				node.pass(time.Second)
				node.mu.Lock()
				node.held = c.after
				node.mu.Unlock()
				hw.hang()
				node.pass(time.Second + time.Second/2)
				g, err := node.GPU(t.Context(), address(0))
				if err != nil {
					t.Fatal(err)
				}
				if len(g.MIG.Partitions) != 0 {
					t.Errorf("the GPU has %v, want nothing but what claims make of it", g.MIG.Partitions)
				}
			})
		})
	}
}

func TestAClusterThatDropsTwoFeaturesIsRememberedToLackBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: halves(1)}, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		c.HandleError(t.Context(), dropped(c.published[0]), "create ResourceSlice")
		synctest.Wait()
		c.want("slice 0\ngpu-01-00 exclusive\ngpu-01-00-mig-3g-40gb-0 exclusive\ngpu-01-00-mig-3g-40gb-4 exclusive\nslice 1", "Published: 3 of 3 devices healthy")

		desired := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: c.published[1].Pools["node-1"].Slices[0].Devices}}
		actual := desired.DeepCopy()
		for i := range actual.Spec.Devices {
			actual.Spec.Devices[i].ConsumesCounters = nil
		}
		c.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "node-1", DesiredSlice: desired, ActualSlice: actual}, "create ResourceSlice")
		synctest.Wait()
		c.want("slice 0\ngpu-01-00 exclusive", "Published: 1 of 1 devices healthy")
	})
}
