// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// recorded returns the record as the next process reads it.
func recorded(t *testing.T, r catalog.NodeRecord, standard catalog.NodeConfig) catalog.NodeRecord {
	t.Helper()
	text, err := r.Encode()
	must(t, err)
	read, err := catalog.DecodeNodeRecord(text, standard)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return read
}

func TestARecordHasEverySettingOfAConfiguration(t *testing.T) {
	other := standardConfig
	other.Offer = "mig,seat"
	other.Shares.Smallest, other.Shares.ComputeOvercommit = 3<<30, 1.25
	other.Shares.Units, other.Layout = kind.Numbers{kind.TimeSlice: 7, kind.Seat: 4}, "halves"
	other.MIG = catalog.MIGOffer{GPUs: 3, Keep: true, AllowReset: true, Profiles: catalog.MIGProfiles{Listed: []gpu.Profile{{Slices: 1, MemoryGB: 10, Media: "+me"}, {Slices: 3, MemoryGB: 40}}}}
	all := standardConfig
	all.Offer, all.MIG.GPUs, all.MIG.Profiles.All = "", 0, true
	for name, config := range map[string]catalog.NodeConfig{"the standard": standardConfig, "another": other, "all profiles of all GPUs": all} {
		require.Same(t, name, config, recorded(t, catalog.NodeRecord{Config: config}, standardConfig).Config)
	}
	// The flags of the agent that reads the record hold for what no configuration can set.
	newer := standardConfig
	newer.Shares.MPS, newer.Shares.Units, newer.MIG.AllowReset = false, kind.Numbers{kind.TimeSlice: 99, kind.Seat: 8}, false
	want := newer
	want.Shares.Units = kind.Numbers{kind.TimeSlice: 4, kind.Seat: 8}
	require.Same(t, "with other flags", want, recorded(t, catalog.NodeRecord{Config: standardConfig}, newer).Config)
}

// The next process offers the same MIG devices, on the same GPUs, without the file.
func TestARecordHasTheLayout(t *testing.T) {
	node := simulated(t, "dgx-h100")
	config := catalog.NodeConfig{Offer: "share,mig", Shares: catalog.ShareOffer{Units: kind.Numbers{kind.TimeSlice: 4}}}
	config.MIG.Config = migConfig(t, "[0,1,2] 1g.10gb*2 2g.20gb*1 3g.40gb*1", "[3]")
	layout, err := config.MIG.Layout(node)
	must(t, err)
	publish := func(config catalog.NodeConfig, layout *catalog.Layout, node gpu.Node) string {
		c := catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: config}
		c.Partitions = layout
		return inSlices(c, node, nil)
	}
	read := recorded(t, catalog.NodeRecord{Config: config, Layout: layout}, catalog.NodeConfig{})
	require.Same(t, "devices", publish(config, layout, node), publish(read.Config, read.Layout, node))
	first := node.GPUs[0].Address
	for name, want := range map[kind.Name]bool{
		kind.Partition(first, gpu.Profile{Slices: 3, MemoryGB: 40}, 4):                  true,
		kind.Partition(first, gpu.Profile{Slices: 7, MemoryGB: 80}, 0):                  false,
		kind.Partition(node.GPUs[3].Address, gpu.Profile{Slices: 3, MemoryGB: 40}, 0):   false,
		kind.Partition(node.GPUs[7].Address, gpu.Profile{Slices: 3, MemoryGB: 40}, 0):   false,
		kind.Partition(gpu.PCIAddress{Bus: 2}, gpu.Profile{Slices: 3, MemoryGB: 40}, 0): true, // may be in it
	} {
		if got := read.Layout.Keeps(name); got != want {
			t.Errorf("keeps %s: %t", name, got)
		}
	}

	// A GPU that the record does not have is not offered as another kind.
	before := publish(read.Config, read.Layout, node)
	added := node.GPUs[7]
	added.Address = gpu.PCIAddress{Bus: 2}
	node.GPUs = append(node.GPUs, added)
	require.Same(t, "devices with another GPU", before, publish(read.Config, read.Layout, node))
}

// The layout of a GPU without profiles is unknown. It must not become one of MIG on demand.
func TestARecordLeavesOutPartitionsThatAreNotKnown(t *testing.T) {
	node := simulated(t, "dgx-h100")
	node.GPUs = node.GPUs[:2]
	node.GPUs[0].MIG.Profiles = nil
	offer := catalog.MIGOffer{Config: migConfig(t, "all 3g.40gb*2")}
	layout, err := offer.Layout(node)
	must(t, err)
	text, err := catalog.NodeRecord{Layout: layout}.Encode()
	must(t, err)
	if lost := node.GPUs[0].Address.DeviceName(); strings.Contains(string(text), lost) || !strings.Contains(string(text), node.GPUs[1].Address.DeviceName()) {
		t.Errorf("%s, want it without %s", text, lost)
	}
	if !layout.Keeps(kind.Partition(node.GPUs[0].Address, gpu.Profile{Slices: 3, MemoryGB: 40}, 0)) {
		t.Error("a MIG device of the GPU is destroyed")
	}
}

// Records of every release are read.
func TestRecordsOfEarlierReleases(t *testing.T) {
	for file, want := range map[string]string{"record-v1.json": "share,mig"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		must(t, err)
		read, err := catalog.DecodeNodeRecord(text, standardConfig)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got := read.Config.Offer.String(); got != want || read.Config.Layout != "mixed" || !read.Config.MIG.Keep || read.Config.Shares.Units.Of(kind.TimeSlice) != 8 {
			t.Errorf("%s: offers %q: %+v", file, got, read.Config)
		}
		if again, err := read.Encode(); err != nil || string(again) != strings.TrimSpace(string(text)) {
			t.Errorf("%s: written again as\n%s, %v, want\n%s", file, again, err, text)
		}
	}
}

func TestRecordsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "unexpected end",
		"{}":                                "version 0, this release knows 1",
		`{"version":2,"settings":{}}`:       "version 2, this release knows 1",
		`{"version":1}`:                     "invalid",
		`{"version":1,"settings":{},"a":1}`: `unknown field "a"`,
		`{"version":1,"settings":{"offer":["teleport"]}}`:                                                    `"teleport" is unknown`,
		`{"version":1,"settings":{},"layout":{"name":"a","gpus":{"gpu-01-00-ts":null}}}`:                     `"gpu-01-00-ts" is not the name of a GPU`,
		`{"version":1,"settings":{},"layout":{"name":"a","gpus":{"gpu-01-00":["gpu-02-00-mig-1g-10gb-0"]}}}`: `"gpu-02-00-mig-1g-10gb-0" is not the name of a MIG device of gpu-01-00`,
		`{"version":1,"settings":{},"layout":{"name":"a","gpus":{"gpu-01-00":["gpu-01-00"]}}}`:               "is not the name of a MIG device",
	} {
		_, err := catalog.DecodeNodeRecord([]byte(text), standardConfig)
		require.Error(t, text, err, gpu.ErrInvalid, want)
	}
}

// A node without a known configuration offers nothing new, and keeps the devices of claims.
func TestANodeThatHoldsBackOffersHeldDevicesOnly(t *testing.T) {
	node := simulated(t, "dgx-h100")
	config := standardConfig
	config.Offer = "share,mig,timeslice,seat,monitor"
	a, b, c, d := node.GPUs[0].Address, node.GPUs[1].Address, node.GPUs[2].Address, node.GPUs[3].Address
	held := catalog.Held{
		kind.Whole(a): false, kind.Whole(b): true, kind.Name{Kind: kind.TimeSlice, Address: c}: true,
		kind.Partition(d, gpu.Profile{Slices: 3, MemoryGB: 40}, 4): false,
	}
	got := inSlices(catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: config.HoldBack()}, node, held)
	want := "1b-00!withdrawn 43-00!withdrawn 52-00-ts!withdrawn 61-00-mig-3g-40gb-4!withdrawn\n{61-00 1}"
	require.Same(t, "devices", want, got)
}
