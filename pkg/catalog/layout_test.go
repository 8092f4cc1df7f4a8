// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// migConfig returns the configuration with entries in the words of
// "all 3g.40gb*1 1g.10gb*2" or "[0,1] off".
func migConfig(t rapid.TB, entries ...string) *migconfig.Config {
	t.Helper()
	text := "version: v1\nmig-configs:\n  wanted:\n"
	for _, entry := range entries {
		devices, profiles, _ := strings.Cut(entry, " ")
		text += fmt.Sprintf("  - devices: %s\n    mig-enabled: %t\n    mig-devices:\n      {", devices, profiles != "off")
		for _, word := range strings.Fields(strings.TrimSuffix(profiles, "off")) {
			profile, count, _ := strings.Cut(word, "*")
			text += profile + ": " + count + ", "
		}
		text += "}\n"
	}
	file, err := migconfig.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	config, err := file.Config("wanted")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// layered returns the catalog with the layout that the entries make of the node.
func layered(t *testing.T, c catalog.Inputs, node gpu.Node, entries ...string) catalog.Inputs {
	t.Helper()
	c.Offer += ",mig"
	c.MIG = catalog.MIGOffer{AllowReset: true, Config: migConfig(t, entries...)}
	var err error
	c.Partitions, err = c.MIG.Layout(node)
	must(t, err)
	return c
}

func TestPlacementsOfALayout(t *testing.T) {
	for _, c := range []struct{ model, layout, want string }{
		{"dgx-h100", "3g.40gb*1 2g.20gb*1 1g.10gb*2", "1g-10gb-2 1g-10gb-3 2g-20gb-0 3g-40gb-4"},
		{"dgx-h100", "1g.10gb*7", "1g-10gb-0 1g-10gb-1 1g-10gb-2 1g-10gb-3 1g-10gb-4 1g-10gb-5 1g-10gb-6"},
		{"dgx-h100", "4g.40gb*1 3g.40gb*1", "3g-40gb-4 4g-40gb-0"},
		{"dgx-h100", "1g.20gb*3 1g.10gb+me*1", "1g-10gb-me-6 1g-20gb-0 1g-20gb-2 1g-20gb-4"},
		{"dgx-h100", "7g.80gb*1", "7g-80gb-0"},
		{"dgx-a100", "2g.20gb*3 1g.10gb*1", "1g-10gb-6 2g-20gb-0 2g-20gb-2 2g-20gb-4"},
		{"a30-bridge", "2g.12gb*1 1g.6gb*2", "1g-6gb-2 1g-6gb-3 2g-12gb-0"},
		{"gb200", "3g.93gb*1 2g.47gb*1 1g.23gb*2", "1g-23gb-2 1g-23gb-3 2g-47gb-0 3g-93gb-4"},
	} {
		t.Run(c.model+" "+c.layout, func(t *testing.T) {
			node := first(t, 1, c.model)
			var names []string
			for _, device := range devices(t, layered(t, sharing(), node, "all "+c.layout), node, nil) {
				if len(device.ConsumesCounters) > 0 || device.AllowMultipleAllocations == nil {
					t.Errorf("%s uses counters %v, or has no shares", device.Name, device.ConsumesCounters)
				}
				_, name, _ := strings.Cut(device.Name, "-mig-")
				names = append(names, name)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("devices %q, want %q", got, c.want)
			}
		})
	}
}

func TestLayoutsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ model, layout, want string }{
		{"dgx-h100", "4g.40gb*1 3g.40gb*1 1g.10gb*1", `MIG configuration "wanted": GPU at 0000:1b:00.0: invalid: 1g.10gb has no place with 4g.40gb@0, 3g.40gb@4`},
		{"dgx-h100", "1g.10gb*8", "8 MIG devices 1g.10gb do not fit; 7 do"},
		{"dgx-h100", "1g.10gb*6 1g.10gb+me*2", "2 MIG devices 1g.10gb+me do not fit; 1 do"},
		{"dgx-h100", "1g.5gb*1", "it has no profile 1g.5gb; it has 1g.10gb"},
		{"dgx-a100", "3g.40gb*2 1g.10gb*1", "1g.10gb has no place with 3g.40gb@0, 3g.40gb@4"},
	} {
		t.Run(c.layout, func(t *testing.T) {
			_, err := catalog.MIGOffer{Config: migConfig(t, "all "+c.layout)}.Layout(first(t, 1, c.model))
			require.Error(t, "Layout", err, gpu.ErrInvalid, c.want)
		})
	}
}

// TestALayoutChangesAroundHeldDevices changes the layout of one or two GPUs while claims
// hold devices.
func TestALayoutChangesAroundHeldDevices(t *testing.T) {
	const half, big = "1b-00-mig-3g-40gb-4", "1b-00-mig-7g-80gb-0"
	balanced := []string{"[0] 3g.40gb*1 2g.20gb*1 1g.10gb*2"}
	for name, c := range map[string]struct {
		entries []string
		held    string
		change  func(*catalog.Inputs)
		want    string
	}{
		"nothing is held":         {balanced, "", nil, "43-00 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4"},
		"a device of the layout":  {balanced, half, nil, "43-00 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4"},
		"a device of another one": {balanced, "1b-00-mig-2g-20gb-2", nil, "43-00 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4 1b-00-mig-2g-20gb-2!withdrawn"},
		"a device that needs all": {balanced, big, nil, "43-00 1b-00-mig-7g-80gb-0!withdrawn"},
		"the whole GPU":           {balanced, "1b-00", nil, "1b-00!withdrawn 43-00"},
		"time slices":             {balanced, "1b-00-ts", nil, "43-00 1b-00-ts!withdrawn"},
		"seats":                   {balanced, "1b-00-seat", nil, "43-00 1b-00-seat!withdrawn"},
		"a GPU on demand": {[]string{"[0]"}, half, func(c *catalog.Inputs) { c.MIG.Profiles.Listed = []gpu.Profile{{Slices: 7, MemoryGB: 80}} },
			"1b-00 43-00 1b-00-mig-7g-80gb-0 1b-00-mig-3g-40gb-4!withdrawn\n{1b-00 1}"},
		"whole again":                   {[]string{"all off"}, half, nil, "1b-00 43-00 1b-00-mig-3g-40gb-4!withdrawn\n{1b-00 1}"},
		"whole again, without counters": {[]string{"all off"}, half, func(c *catalog.Inputs) { c.NoCounters = true }, "43-00 1b-00-mig-3g-40gb-4!withdrawn"},
		"a layout without counters":     {balanced, "", func(c *catalog.Inputs) { c.NoCounters = true }, "43-00 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4"},
		"MIG is no longer offered":      {balanced, half, func(c *catalog.Inputs) { c.Offer = "share" }, "1b-00 43-00 1b-00-mig-3g-40gb-4!withdrawn\n{1b-00 1}"},
		"no slots and seats with layouts": {balanced, "", func(c *catalog.Inputs) { c.Offer += ",timeslice,seat" },
			"43-00 43-00-ts 43-00-seat 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4\n{43-00 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			node := first(t, 2, "dgx-h100")
			inputs := layered(t, sharing(), node, c.entries...)
			if c.change != nil {
				c.change(&inputs)
			}
			held := catalog.Held{}
			if c.held != "" {
				held[kindtest.Name("gpu-"+c.held)] = true
			}
			require.Same(t, "published", c.want, inSlices(inputs, node, held))
		})
	}
}

func TestALayoutAvoidsForeignPartitions(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	c := layered(t, sharing(), node, "all 3g.40gb*1 2g.20gb*1 1g.10gb*2")
	node.GPUs[0].MIG.Enabled = true
	node.GPUs[0].MIG.Partitions = []gpu.Partition{partition(t, node.GPUs[0], "1g.10gb", 3, 1)}
	require.Same(t, "published", "1b-00-mig-1g-10gb-2 1b-00-mig-2g-20gb-0 1b-00-mig-3g-40gb-4", inSlices(c, node, nil))
	want := `GPU at 0000:1b:00.0: 1g.10gb@3 of the MIG configuration "wanted" conflicts with a MIG device that this driver has not made`
	if why := catalog.New(c).Withheld(node); len(why) != 1 || !strings.HasPrefix(why[0], want) {
		t.Errorf("withheld: %q, want %q", why, want)
	}
}

func TestAGPUThatCannotBeCutStaysWhole(t *testing.T) {
	node := first(t, 1, "dgx-a100")
	c := layered(t, sharing(), node, "all 7g.80gb*1")
	c.MIG.AllowReset = false
	if got := inSlices(c, node, nil); got != "07-00" {
		t.Errorf("published %q, want the whole GPU", got)
	}
	if why := catalog.New(c).Withheld(node); len(why) != 1 || !strings.Contains(why[0], "changes with a reset only") {
		t.Errorf("withheld: %q, want the reason", why)
	}
}

// randomLayout returns the layout of random profiles on random GPUs. It returns false
// if the hardware does not admit it.
func randomLayout(t *rapid.T, node gpu.Node) (*catalog.Layout, bool) {
	var entries []string
	for i, g := range node.GPUs {
		entry := fmt.Sprintf("[%d] ", i)
		if len(g.MIG.Profiles) == 0 || rapid.IntRange(0, 3).Draw(t, "off") == 0 {
			entries = append(entries, entry+"off")
			continue
		}
		counts := map[gpu.Profile]int{}
		for range rapid.IntRange(0, 5).Draw(t, "devices") {
			counts[rapid.SampledFrom(g.MIG.Profiles).Draw(t, "profile").Profile]++
		}
		for profile, count := range counts {
			entry += fmt.Sprintf("%s*%d ", profile, count)
		}
		entries = append(entries, strings.TrimSuffix(entry, " "))
	}
	layout, err := catalog.MIGOffer{Config: migConfig(t, entries...)}.Layout(node)
	if err != nil && !errors.Is(err, gpu.ErrInvalid) {
		t.Fatal(err)
	}
	return layout, err == nil
}

// TestDevicesWithoutCountersAreJointlyFeasible publishes random layouts while claims hold
// random devices that the hardware has admitted. The scheduler can allocate all devices
// without counters at the same time, so the hardware must admit them all.
func TestDevicesWithoutCountersAreJointlyFeasible(t *testing.T) {
	t.Parallel()
	hardware, migs := map[string]gpu.Node{}, map[string]*nvmlsim.MIG{}
	for _, model := range []string{"dgx-h100", "dgx-a100", "a30-bridge"} {
		hardware[model], migs[model] = first(t, 2, model), kindOf(t, model).MIG
	}
	tried := 0
	rapid.Check(t, func(rt *rapid.T) {
		model := rapid.SampledFrom(slices.Sorted(maps.Keys(hardware))).Draw(rt, "model")
		node, c, held := hardware[model], slicing(cutting(catalog.MIGProfiles{})), catalog.Held{}
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			layout, valid := randomLayout(rt, node)
			if !valid {
				continue
			}
			c.Partitions = layout
			for _, g := range node.GPUs {
				open := without(c, node, held, g)
				if tried += len(open); len(open) > 0 && !possible(migs[model], open) {
					rt.Fatalf("the hardware does not admit %v together", open)
				}
			}
			next := catalog.Held{}
			for _, g := range node.GPUs {
				for _, name := range without(c, node, held, g) {
					if rapid.Bool().Draw(rt, "held") {
						next[name] = true
					}
				}
			}
			held = next
		}
	})
	if tried == 0 {
		t.Error("no layout was published, so none was tried")
	}
}

// without returns the published devices of a GPU without counters. They are held by
// claims, or new claims can get them.
func without(c catalog.Inputs, node gpu.Node, held catalog.Held, g gpu.GPU) []kind.Name {
	var names []kind.Name
	for _, slice := range catalog.New(c).Resources(node, held).Pools["node-1"].Slices {
		for _, device := range slice.Devices {
			name := kindtest.Name(device.Name)
			if name.Address != g.Address || !held[name] && len(device.Taints) > 0 {
				continue
			}
			if len(device.ConsumesCounters) > 0 {
				return nil
			}
			names = append(names, name)
		}
	}
	return names
}
