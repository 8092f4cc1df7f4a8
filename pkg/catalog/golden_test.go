// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The largest sizes, as JSON, of the slices of a node with eight GPUs: with whole
// GPUs only, with the fewest and with all attributes, with time slices, with seats, and with the common MIG profiles. The scheduler and
// the API server of a fleet pay for every byte on every node. Of the size with MIG,
// 3 kB mark a hundred devices as shareable, which is the whole cost of their shares.
const (
	wholeLimit     = 9_200
	leanLimit      = 6_000
	allLimit       = 11_500
	timeSliceLimit = 17_500
	seatLimit      = 18_000
	layoutLimit    = 12_000
	commonLimit    = 50_600
	bothLimit      = 57_600
	noLimit        = 1 << 20
)

// goldenCase is a node and what its agent offers. testdata/NAME.txt has the text of
// its slices (see slicesText), or how that differs from the text of another case.
type goldenCase struct {
	catalog    catalog.Inputs
	model      string
	conditions catalog.Conditions
	change     func(node *gpu.Node)
	// layout has the entries of its layout; see migConfig.
	layout []string
	// limit is the size in bytes of the compact JSON of all slices.
	limit int
	base  string
}

func goldenCases() map[string]goldenCase {
	exclusive := sharing()
	exclusive.Exclusive = true
	mig, allMIG := cutting(catalog.MIGProfiles{}), cutting(catalog.MIGProfiles{All: true})
	cases := map[string]goldenCase{
		"mig-layout-dgx-h100":    {catalog: mig, model: "dgx-h100", limit: layoutLimit, layout: []string{"[0,1,2,3,4,5] 3g.40gb*1 2g.20gb*1 1g.10gb*2", "[6] 7g.80gb*1"}},
		"exclusive":              {catalog: exclusive, model: "t4", limit: wholeLimit, base: "t4"},
		"monitor-l40s":           {catalog: watched(sharing()), model: "l40s", limit: wholeLimit, base: "l40s"},
		"attributes-dgx-h100":    {catalog: detailed(sharing()), model: "dgx-h100", limit: allLimit, base: "dgx-h100"},
		"lean-dgx-h100":          {catalog: lean(sharing()), model: "dgx-h100", limit: leanLimit, base: "dgx-h100"},
		"timeslice-dgx-h100":     {catalog: slicing(sharing()), model: "dgx-h100", limit: timeSliceLimit, base: "dgx-h100"},
		"seat-dgx-h100":          {catalog: seating(sharing()), model: "dgx-h100", limit: seatLimit, base: "dgx-h100"},
		"mig-dgx-h100":           {catalog: mig, model: "dgx-h100", limit: commonLimit},
		"mig-dgx-a100":           {catalog: mig, model: "dgx-a100", limit: commonLimit, base: "mig-dgx-h100"},
		"mig-hgx-h200":           {catalog: mig, model: "hgx-h200", limit: commonLimit, base: "mig-dgx-h100"},
		"mig-dgx-b200":           {catalog: mig, model: "dgx-b200", limit: commonLimit, base: "mig-dgx-h100"},
		"mig-rtx-pro-6000":       {catalog: mig, model: "rtx-pro-6000", limit: commonLimit},
		"mig-mixed-a30-l40s":     {catalog: mig, model: "mixed-a30-l40s", limit: commonLimit},
		"mig-a30-bridge":         {catalog: mig, model: "a30-bridge", limit: commonLimit},
		"mig-all-dgx-h100":       {catalog: allMIG, model: "dgx-h100", limit: noLimit},
		"mig-timeslice-dgx-h100": {catalog: slicing(mig), model: "dgx-h100", limit: bothLimit, base: "mig-dgx-h100"},
		"faults": {
			catalog: sharing(), model: "dgx-h100", limit: wholeLimit + 300, base: "dgx-h100",
			conditions: catalog.Conditions{{Bus: 0x43}: {Cause: "xid-74"}, {Bus: 0x61}: {Cause: "lost"}},
			change: func(node *gpu.Node) {
				node.GPUs[1].Links[0].Active = false
				node.GPUs[2].MIG.Enabled = true
				node.GPUs[3].Links = nil
			},
		},
	}
	for _, model := range nvmlsim.ModelNames() {
		cases[model] = goldenCase{catalog: sharing(), model: model, limit: wholeLimit}
	}
	for name, size := range sizes() {
		cases[name] = goldenCase{catalog: sharing(), model: name, limit: wholeLimit * max(8, len(size.addresses)) / 8}
	}
	return cases
}

// "make generate" regenerates the files. The list that --print-slices writes is
// written for other tests to the folder WRITE_SLICES.
func TestSlicesOfEachModelAndOffer(t *testing.T) {
	t.Parallel()
	cases := goldenCases()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := tc.slices(t)
			if size := len(compactJSON(written)); size > tc.limit {
				t.Errorf("the node takes %d bytes of JSON, more than %d", size, tc.limit)
			}
			for device := range allDevices(written) {
				if n := len(device.Attributes) + len(device.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
					t.Errorf("%s has %d attributes and capacities, more than the API admits", device.Name, n)
				}
			}
			checkCounters(t, written)
			list := printed(t, written)
			if folder := os.Getenv("WRITE_SLICES"); folder != "" {
				must(t, os.WriteFile(filepath.Join(folder, name+".json"), list, 0o644))
			}
			text := slicesText(written)
			if tc.base != "" {
				text = difference(t, tc.base+".txt", slicesText(cases[tc.base].slices(t)), text)
			}
			file := filepath.Join("testdata", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(file, []byte(text), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			require.Same(t, file+" is out of date; run make generate", string(want), text)
		})
	}
}

// checkCounters checks that devices have different names, and that the GPU has each
// counter that a device consumes.
func checkCounters(t *testing.T, written []resourceapi.ResourceSlice) {
	t.Helper()
	totals := map[string]map[string]resourceapi.Counter{}
	for _, slice := range written {
		for _, set := range slice.Spec.SharedCounters {
			totals[set.Name] = set.Counters
		}
	}
	names := map[string]bool{}
	for device := range allDevices(written) {
		if names[device.Name] {
			t.Errorf("two devices are named %s", device.Name)
		}
		names[device.Name] = true
		for _, consumed := range device.ConsumesCounters {
			for counter, n := range consumed.Counters {
				if total, known := totals[consumed.CounterSet][counter]; !known || total.Value.Cmp(n.Value) < 0 {
					t.Errorf("%s consumes %s of %s/%s, which has %s", device.Name, &n.Value, consumed.CounterSet, counter, &total.Value)
				}
			}
		}
	}
}

func (tc goldenCase) slices(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	node := simulated(t, tc.model)
	if tc.change != nil {
		tc.change(&node)
	}
	if tc.layout != nil {
		tc.catalog = layered(t, tc.catalog, node, tc.layout...)
	}
	// As the agent's flags have them by default.
	tc.catalog.Shares.Smallest, tc.catalog.Shares.ServerMemory = 1<<30, 64<<20
	tc.catalog.Conditions = tc.conditions
	return catalog.PrintedSlices("gpu.nvidia.com", tc.catalog.Pool, catalog.New(tc.catalog).Resources(node, nil))
}

// printed returns the List that --print-slices writes, and checks that it holds the
// slices and nothing else.
func printed(t *testing.T, written []resourceapi.ResourceSlice) []byte {
	t.Helper()
	var list, indented bytes.Buffer
	must(t, catalog.WriteList(&list, written))
	compact := `{"kind":"List","apiVersion":"v1","metadata":{},"items":` + compactJSON(written) + "}\n"
	must(t, json.Indent(&indented, []byte(compact), "", "  "))
	require.Same(t, "the printed list is not that of the slices", indented.String(), list.String())
	return list.Bytes()
}

// simulated scans a node of the model with the real adapters.
func simulated(t testing.TB, model string) gpu.Node {
	t.Helper()
	sim := machines.get(t, model)
	node, err := nvml.New(sim.NVML()).Snapshot(t.Context())
	must(t, err)
	node, err = sysfs.Root(sim.Root()).Locate(node)
	must(t, err)
	if len(node.Unreadable) > 0 {
		t.Fatalf("GPUs that do not answer: %v", node.Unreadable)
	}
	return node
}
