// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// A device that is no longer offered stays published for the claims that hold it.
// Other claims must not be allocated it: a claim that is not prepared when the last
// prepared holder ends would lose its device.
func TestAWithdrawnDeviceIsNotAllocatedAgain(t *testing.T) {
	alone := listed(t, "3g.40gb")
	alone.Offer = "mig"
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		words   string
		keep    catalog.Offer
		taint   string
	}{
		"shares":                 {sharing(), "memory=10Gi", "", "share"},
		"shares, with MIG":       {sharing(), "memory=10Gi", "mig", "share"},
		"time slices":            {slicing(sharing()), "class=timeslice", "share", "timeslice"},
		"seats":                  {seating(sharing()), "class=seat", "share", "seat"},
		"MIG":                    {alone, "class=mig profile=3g.40gb", "share", "mig"},
		"shares of MIG devices":  {listed(t, "7g.80gb"), "class=mig memory=10Gi", "mig", "share"},
		"MIG, with shares of it": {listed(t, "7g.80gb"), "class=mig memory=10Gi", "share", "mig"},
	} {
		t.Run(name, func(t *testing.T) {
			hardware := first(t, 1, "dgx-h100")
			node := schedulable(t, tc.catalog, hardware, nil)
			results, err := node.Allocate(t.Context(), "one", claim(tc.words))
			must(t, err)
			has := results[0]

			tc.catalog.Offer = tc.keep
			left := catalog.New(tc.catalog).Resources(hardware, catalog.Held{kindtest.Name(has.Device): has.ShareID != nil})
			node.Publish(left)
			if _, err := node.Allocate(t.Context(), "two", claim(tc.words)); !errors.Is(err, allocator.ErrNoFit) {
				t.Errorf("another claim gets a withdrawn device: %v\n%s", err, node)
			}
			for _, slice := range left.Pools["node-1"].Slices {
				for _, device := range slice.Devices {
					tainted := len(device.Taints) == 1 && device.Taints[0].Key == v1alpha1.TaintWithdrawn && device.Taints[0].Value == tc.taint
					if want := device.Name == has.Device; tainted != want || !want && len(device.Taints) > 0 {
						t.Errorf("%s has the taints %v", device.Name, device.Taints)
					}
				}
			}

			node.Free("one")
			node.Publish(catalog.New(tc.catalog).Resources(hardware, nil))
			whole, err := node.Allocate(t.Context(), "three", claim(""))
			if err != nil || whole[0].Device != (kind.Name{Kind: kind.GPU, Address: hardware.GPUs[0].Address}).String() {
				t.Errorf("the GPU is not whole again: %v, %v", whole, err)
			}
		})
	}
}
