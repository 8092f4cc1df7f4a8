// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// countedByAutoscaler returns the part of a pool that the Cluster Autoscaler counts as used, by its source of November 2026.
// Of devices without counters that is the part that is allocated. Of the others it is the mean over the counter sets, each with
// its fullest counter. Of both it is the mean by number. A device counts once, however many claims it has.
// Source: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/simulator/dynamicresources/utils/utilization.go
func countedByAutoscaler(resources resourceslice.DriverResources, allocated map[string]bool) float64 {
	type counter struct{ set, name string }
	totals, used := map[counter]float64{}, map[counter]float64{}
	var simple, simpleUsed float64
	for _, pool := range resources.Pools {
		for _, slice := range pool.Slices {
			for _, set := range slice.SharedCounters {
				for name, c := range set.Counters {
					totals[counter{set.Name, name}] = c.Value.AsApproximateFloat64()
				}
			}
			for _, device := range slice.Devices {
				if len(device.ConsumesCounters) == 0 {
					simple++
				}
				if !allocated[device.Name] {
					continue
				}
				if len(device.ConsumesCounters) == 0 {
					simpleUsed++
				}
				for _, set := range device.ConsumesCounters {
					for name, c := range set.Counters {
						used[counter{set.CounterSet, name}] += c.Value.AsApproximateFloat64()
					}
				}
			}
		}
	}
	highest := map[string]float64{}
	for c, total := range totals {
		highest[c.set] = max(highest[c.set], used[c]/total)
	}
	var counted float64
	for _, part := range highest {
		counted += part
	}
	switch sets := float64(len(highest)); {
	case counted == 0:
		return simpleUsed / simple
	case simpleUsed == 0:
		return counted / sets
	default:
		return (counted + simpleUsed) / (sets + simple)
	}
}

// docs/admin/programs.md has the numbers.
func TestWhatTheClusterAutoscalerCounts(t *testing.T) {
	host := first(t, 8, "dgx-h100")
	onDemand := cutting(catalog.MIGProfiles{})
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		claims  []resourceapi.DeviceClaim
		percent float64
	}{
		"a whole GPU":                  {sharing(), []resourceapi.DeviceClaim{claim("")}, 12.5},
		"a share of 1Gi":               {sharing(), []resourceapi.DeviceClaim{claim("memory=1Gi")}, 12.5},
		"nine shares of one GPU":       {sharing(), slices.Repeat([]resourceapi.DeviceClaim{claim("memory=9000Mi")}, 9), 12.5},
		"1g.10gb on demand":            {onDemand, []resourceapi.DeviceClaim{mig("1g.10gb")}, 6.3},
		"seven 1g.10gb of one GPU":     {onDemand, slices.Repeat([]resourceapi.DeviceClaim{mig("1g.10gb")}, 7), 12.5},
		"3g.40gb on demand":            {onDemand, []resourceapi.DeviceClaim{mig("3g.40gb")}, 12.5},
		"1g.10gb of seven in each GPU": {layered(t, sharing(), host, "all 1g.10gb*7"), []resourceapi.DeviceClaim{mig("1g.10gb")}, 1.8},
	} {
		t.Run(name, func(t *testing.T) {
			resources := catalog.New(tc.catalog).Resources(host, nil)
			node := allocator.NewNode(resources, allocator.Features(), classes(t)...)
			allocated := map[string]bool{}
			for i, c := range tc.claims {
				results, err := node.Allocate(t.Context(), fmt.Sprint(i), c)
				must(t, err)
				for _, r := range results {
					allocated[r.Device] = true
				}
			}
			if got := 100 * countedByAutoscaler(resources, allocated); math.Abs(got-tc.percent) > 0.1 {
				t.Errorf("%v: %.1f %%, want %.1f %%", allocated, got, tc.percent)
			}
		})
	}
}
