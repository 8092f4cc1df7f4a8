// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// uuids returns the UUIDs of the MIG devices of the first GPU.
func (n *node) uuids(t *testing.T) []string {
	t.Helper()
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	view, err := sim.View()
	if err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for _, in := range view.GPUs[0].Instances {
		uuids = append(uuids, in.UUID)
	}
	return uuids
}

// A MIG device of a layout outlives its claim and the agent, and is published as before.
// It is destroyed when another layout has no place for it.
func TestAgentKeepsTheMIGDevicesOfALayout(t *testing.T) {
	t.Parallel()
	claim, other := claimFor("one", "gpu-1b-00-mig-3g-40gb-0"), claimFor("two", "gpu-1b-00-mig-1g-10gb-1")
	n := newNode(t, claim, other)
	n.nameSlices(t)
	n.Supervisor = ""
	n.Offer, n.MIG.Keep = "mig", true
	n.MIGLayouts, n.Layout = n.write(t, "layouts.yaml", layouts), "halves"
	halves := func(devices []string) bool { return len(devices) == 16 }
	use := func(a *running) (uuid string) {
		t.Helper()
		if got := a.prepare(t, claim)["uid-one"]; got.Error != "" {
			t.Fatal(got.Error)
		}
		if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		uuids := n.uuids(t)
		if len(uuids) != 1 {
			t.Fatalf("MIG devices %q, want the one of the claim", uuids)
		}
		return uuids[0]
	}

	a := n.start(t)
	n.offers(t, halves)
	made := use(a)
	n.mustStop(t, a)
	a = n.start(t)
	n.offers(t, halves)
	if found := use(a); found != made {
		t.Errorf("the claim has %s, want %s, which was there", found, made)
	}
	n.mustStop(t, a)

	n.Layout = "sevenths"
	a = n.start(t)
	n.offers(t, func(devices []string) bool { return len(devices) == 14 })
	if got := a.prepare(t, other)["uid-two"]; got.Error != "" {
		t.Fatal(got.Error)
	}
	if uuids := n.uuids(t); len(uuids) != 1 || uuids[0] == made {
		t.Errorf("MIG devices %q, want one other than %s", uuids, made)
	}
}
