// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestDevicesInUseAreFirstAndFullOnesLast(t *testing.T) {
	const gi = 1 << 30
	exclusive := sharing()
	exclusive.Exclusive = true
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		taken   catalog.Taken
		want    []string
	}{
		"nothing is taken":               {sharing(), nil, []string{"gpu-1b-00", "gpu-43-00", "gpu-52-00"}},
		"a whole GPU and a part of one":  {sharing(), catalog.Taken{"gpu-1b-00": {Bytes: 81559 << 20}, "gpu-43-00": {Bytes: 10 * gi}}, []string{"gpu-43-00", "gpu-52-00", "gpu-1b-00"}},
		"shares of the last GPUs":        {sharing(), catalog.Taken{"gpu-43-00": {Bytes: 10 * gi}, "gpu-52-00": {Bytes: 20 * gi}}, []string{"gpu-43-00", "gpu-52-00", "gpu-1b-00"}},
		"full GPUs keep their own order": {sharing(), catalog.Taken{"gpu-1b-00": {Whole: true}, "gpu-43-00": {Whole: true}}, []string{"gpu-52-00", "gpu-1b-00", "gpu-43-00"}},
		// The smallest share of an H100 with MPS is a 48th, 1699Mi.
		"room for the smallest share":       {sharing(), catalog.Taken{"gpu-1b-00": {Bytes: (81559 - 1699) << 20}}, []string{"gpu-1b-00", "gpu-43-00", "gpu-52-00"}},
		"less room than the smallest share": {sharing(), catalog.Taken{"gpu-1b-00": {Bytes: (81559 - 1698) << 20}}, []string{"gpu-43-00", "gpu-52-00", "gpu-1b-00"}},
		"an exclusive GPU":                  {exclusive, catalog.Taken{"gpu-1b-00": {Whole: true}}, []string{"gpu-43-00", "gpu-52-00", "gpu-1b-00"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.catalog.Taken = tc.taken
			var got []string
			for _, d := range devices(t, tc.catalog, h100(t, 3), nil) {
				got = append(got, d.Name)
			}
			require.Same(t, "order", tc.want, got)
		})
	}
}

// A share must not take the GPU that a claim for a whole one needs.
func TestSharesFillGPUsInUse(t *testing.T) {
	c := sharing()
	node := schedulable(t, c, h100(t, 3), nil)
	if got := allocateAll(t, node, []resourceapi.DeviceClaim{claim(""), claim("memory=60Gi"), claim("memory=10Gi")}); !strings.Contains(got, "c 43-00 10Gi") {
		t.Fatalf("got:\n%s", got)
	}
	node.Free("a")
	c.Taken = catalog.Taken{"gpu-43-00": {Bytes: 70 << 30}}
	node.Publish(catalog.New(c).Resources(h100(t, 3), nil))
	results, err := node.Allocate(t.Context(), "share", claim("memory=5Gi"))
	if err != nil || results[0].Device != "gpu-43-00" {
		t.Errorf("got %v, %v; want a share of the GPU in use", results, err)
	}
	if _, err := node.Allocate(t.Context(), "two", claim("count=2")); err != nil {
		t.Errorf("two whole GPUs: %v", err)
	}
}

// A pool of several slices would be unusable while two of them change.
func TestAPoolOfSeveralSlicesKeepsItsOrder(t *testing.T) {
	c := slicing(sharing())
	before := catalog.New(c).Resources(h100(t, 3), nil).Pools["node-1"].Slices
	c.Taken = catalog.Taken{"gpu-1b-00": {Whole: true}}
	after := catalog.New(c).Resources(h100(t, 3), nil).Pools["node-1"].Slices
	if diff := cmp.Diff(before, after); diff != "" || len(after) < 2 {
		t.Errorf("%d slices (-before +after):\n%s", len(after), diff)
	}
}
