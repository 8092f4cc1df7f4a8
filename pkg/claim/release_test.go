// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// listed returns the only held claim.
func (w *world) listed(ctx context.Context, m *claim.Manager) claim.Held {
	w.t.Helper()
	all, err := m.Held(ctx)
	if err != nil || len(all) != 1 {
		w.t.Fatalf("held: %v, %v, want one claim", all, err)
	}
	return all[0]
}

func TestAClaimIsReleasedIfTheAPIAllocatesItElsewhere(t *testing.T) {
	id := types.UID("share-of-another-allocation")
	for name, c := range map[string]struct {
		change   func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim
		released bool
	}{
		"as it was prepared": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim { return c }, false},
		"with another driver's device before it": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			results := &c.Status.Allocation.Devices.Results
			*results = append([]resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: "nic.example.com", Pool: pool, Device: "nic-0"}}, *results...)
			return c
		}, false},
		"gone": {func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim { return nil }, true},
		"another claim of its name": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.UID = "uid-of-another"
			return c
		}, true},
		"not allocated": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation = nil
			return c
		}, true},
		"on another node": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Pool = "node-2"
			return c
		}, true},
		"another GPU of this node": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Device = "gpu-01-00"
			return c
		}, true},
		"another share of the GPU": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].ShareID = &id
			return c
		}, true},
		"one device more": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			results := &c.Status.Allocation.Devices.Results
			*results = append(*results, resourceapi.DeviceRequestAllocationResult{Request: "more", Driver: driver, Pool: pool, Device: "gpu-01-00"})
			return c
		}, true},
		"no device of this driver": {func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
			return c
		}, true},
	} {
		for how, lose := range map[string]bool{"with its record": false, "without its record": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				w := newShareWorld(t, t.TempDir(), 2)
				m, prepared := w.start(), pieces("c", piece{device: "gpu-00-00", memory: "10Gi"})
				if _, err := m.Prepare(t.Context(), prepared); err != nil {
					t.Fatal(err)
				}
				if lose {
					must(t, os.Remove(w.recordPath(prepared)))
				}
				before := w.left(m)
				released, err := m.Release(t.Context(), w.listed(t.Context(), m), c.change(prepared.DeepCopy()))
				if err != nil || released != c.released {
					t.Errorf("released %t, %v, want %t", released, err, c.released)
				}
				if c.released {
					before = ""
				}
				if diff := cmp.Diff(before, w.left(m)); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The object from the API server describes the claim as listed, not the claim that
// was prepared since.
func TestAClaimPreparedAfterItWasListedIsNotReleased(t *testing.T) {
	for name, anew := range map[string]string{"with another GPU": "gpu-01-00", "with the same GPU": "gpu-00-00"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), 2)
			m, c := w.start(), newClaim("c", "gpu-00-00")
			if _, err := m.Prepare(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			held, notAllocated := w.listed(t.Context(), m), newClaim("c")
			notAllocated.Status.Allocation = nil

			must(t, m.Unprepare(t.Context(), c.UID))
			if released, err := m.Release(t.Context(), held, notAllocated); released || err != nil {
				t.Errorf("unprepared meanwhile: released %t, %v", released, err)
			}
			if _, err := m.Prepare(t.Context(), newClaim("c", anew)); err != nil {
				t.Fatal(err)
			}
			if released, err := m.Release(t.Context(), held, notAllocated); released || err != nil {
				t.Errorf("prepared anew meanwhile: released %t, %v", released, err)
			}
			if diff := cmp.Diff("team-a/c Prepared "+anew+"\n", w.held(m)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if released, err := m.Release(t.Context(), w.listed(t.Context(), m), notAllocated); !released || err != nil {
				t.Errorf("listed again: released %t, %v", released, err)
			}
		})
	}
}
