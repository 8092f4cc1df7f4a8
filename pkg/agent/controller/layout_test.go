// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// layoutOf returns the configuration of a file that has no other.
func layoutOf(t *testing.T, text string) *migconfig.Config {
	t.Helper()
	file, err := migconfig.Parse([]byte("version: v1\nmig-configs: {wanted: [" + text + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := file.Config("wanted")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

const inHalves = "gpu-01-00-mig-3g-40gb-0\ngpu-01-00-mig-3g-40gb-4"

// A layout that is not valid on the node changes nothing, and the state says why.
func TestALayoutIsFollowedWhileItIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpu.Node{}}
		r := startChanged(t, hw, func(p *parts) {
			p.Catalog.Offer = "share,mig"
			p.Catalog.MIG.Config = layoutOf(t, "{devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}, {devices: [1], mig-enabled: false}")
		})
		see := func(node gpu.Node, want, state string) {
			t.Helper()
			for i := range node.GPUs {
				node.GPUs[i].Links = nil
			}
			hw.change(func(h *hardware) { h.node = node })
			r.Inventory.RequestScan()
			r.pass(time.Minute)
			if got := strings.TrimPrefix(strings.TrimPrefix(r.shown(), "slice 0"), "\n"); got != want {
				t.Errorf("published:\n%s\nwant:\n%s", got, want)
			}
			if got := r.State().String(); !strings.Contains(got, state) {
				t.Errorf("state %q, want %q", got, state)
			}
		}
		see(halves(1), "", `MIG configuration "wanted", entry 2: invalid: GPU 1, and the node has 1 GPUs, counted from 0; meanwhile the node offers only devices that claims hold`)
		see(halves(2), "gpu-02-00\n"+inHalves, "Published: 3 of 3 devices healthy")
		wrong := halves(3)
		wrong.GPUs[0].MIG.Profiles = nil
		see(wrong, "gpu-01-00\ngpu-02-00\ngpu-03-00", "Published: 3 of 3 devices healthy")
		see(halves(3), "gpu-02-00\ngpu-03-00\n"+inHalves, "Published: 4 of 4 devices healthy")
		unclear := halves(3)
		unclear.Unreadable = []gpu.Unreadable{{Index: 3, Err: gpu.ErrTimeout}}
		see(unclear, "gpu-02-00\ngpu-03-00\n"+inHalves, "a GPU does not tell its PCI address, so the indices of the GPUs are not known; the node still offers \"share,mig\"")
	})
}

// MIG devices that stay without claims do not change the published devices. The
// controller says which ones stay.
func TestKeptMIGDevicesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low := kind.Partition(address(0), gpu.Profile{Slices: 3, MemoryGB: 40}, 0)
		hw := &hardware{node: halves(1)}
		hw.node.GPUs[0].MIG.Enabled, hw.node.GPUs[0].MIG.PendingEnabled = true, true
		hw.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0)}
		r := startChanged(t, hw, func(p *parts) {
			p.Catalog.Offer = "share,mig"
			p.Catalog.MIG.Keep = true
			p.Catalog.MIG.Config = layoutOf(t, "{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}")
			p.Claims = func() (claimed, error) {
				return claimed{kept: map[string]bool{"MIG-0": true}, switched: map[gpu.PCIAddress]bool{address(0): true}}, nil
			}
		})
		if got := strings.TrimPrefix(r.shown(), "slice 0\n"); got != inHalves {
			t.Errorf("published:\n%s", got)
		}
		if g, err := r.GPU(t.Context(), address(0)); err != nil || g.MIG.Enabled || len(g.MIG.Partitions) > 0 {
			t.Errorf("the inventory has %+v, %v", g.MIG, err)
		}
		for name, want := range map[kind.Name]bool{low: true, kind.Partition(address(0), gpu.Profile{Slices: 7, MemoryGB: 80}, 0): false, kind.Whole(address(0)): false} {
			if got := r.state.Configuration.Get().Followed.Keeps(name); got != want {
				t.Errorf("keeps %s: %t", name, got)
			}
		}
	})
}
