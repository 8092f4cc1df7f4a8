// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// testNode returns the hardware of a node, and the chart's classes.
func testNode(t *testing.T) (gpu.Node, []*resourceapi.DeviceClass) {
	t.Helper()
	classes, err := allocator.ReadClasses("../../deployments/static/install.yaml")
	must(t, err)
	hardware, err := dgxH100(t.Context())
	must(t, err)
	return hardware, classes
}

// Every publication serves the kinds of claims that are measured on it and that fill it.
func TestPublicationsServeTheirClaims(t *testing.T) {
	hardware, classes := testNode(t)
	for _, p := range publications() {
		t.Run(p.name, func(t *testing.T) {
			for _, name := range slices.Concat(p.measured, p.filling) {
				i := slices.IndexFunc(claimKinds(), func(k claimKind) bool { return k.name == name })
				if i < 0 {
					t.Fatalf("%s is unknown", name)
				}
				k := claimKinds()[i]
				// A layout of small MIG devices has no large ones.
				if k.devices == nil {
					continue
				}
				resources, err := p.describe(nodeName(0), hardware, nil)
				must(t, err)
				node := allocator.NewNode(resources, allocator.Features(), classes...)
				if _, err := node.Allocate(t.Context(), "claim", *k.devices); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			f := fleet{publication: p, hardware: hardware, classes: classes, nodes: patterns, seed: 1}
			fill, err := newFilling(f)
			must(t, err)
			kinds := p.fillingKinds()
			for _, gpus := range []float64{0.5 * f.gpus(), 0.9 * f.gpus()} {
				for i, pattern := range fill.patterns {
					if _, err := pattern.grow(t.Context(), kinds, gpus); err != nil {
						t.Fatal(err)
					}
					// A layout has memory that no MIG device uses, and random claims leave gaps.
					if pattern.held < gpus-1.5 || pattern.held > gpus+0.25 {
						t.Errorf("claims hold %g GPUs of node %d, want about %g", pattern.held, i, gpus)
					}
				}
			}
		})
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, words := range []string{"", "1,x", "90,0", "-1", "101", "1 2"} {
		if fills, err := parseFills(words); err == nil {
			t.Errorf("-fills %q: got %v", words, fills)
		}
	}
	name := func(k claimKind) string { return k.name }
	for _, words := range []string{"", "wole", "whole,whole"} {
		if chosen, err := choose(words, claimKinds(), name); err == nil {
			t.Errorf("-kinds %q: got %v", words, chosen)
		}
	}
	if chosen, err := choose("slot,whole", claimKinds(), name); err != nil || len(chosen) != 2 || chosen[0].name != "whole" {
		t.Errorf("got %v, %v", chosen, err)
	}
}

func TestRatiosCompareWithPlainGPUsOfTheSameFill(t *testing.T) {
	all := []result{
		{Publication: plain, Kind: "whole", Fill: 0, SchedulerTime: 10},
		{Publication: plain, Kind: "whole", Fill: 90, SchedulerTime: 20},
		{Publication: "share", Kind: "share", Fill: 90, SchedulerTime: 30},
	}
	if got := ratio(all[2], all, plain, "whole", 90); got != "1.50" {
		t.Errorf("got %s", got)
	}
	if got := ratio(all[2], all, "share", "share", 0); got != "-" {
		t.Errorf("without an empty fleet: got %s", got)
	}
}

var must = require.NoError
