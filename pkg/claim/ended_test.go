// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A container that loads data has no context on the GPU, and keeps its device nodes.
func TestAClaimIsKeptWhileAProcessOfItsPodsLives(t *testing.T) {
	whole, mig := usedBy(newClaim("c", "gpu-00-00"), "pod-c"), usedBy(newClaim("c", h100+"-mig-1g-10gb-0"), "pod-c")
	late := usedBy(newClaim("c", "gpu-00-00"), "pod-c", "pod-late")
	for name, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		// object is the claim in the API when it is compared; nil if it is gone.
		object *resourceapi.ResourceClaim
		// late is set if a pod joins after the claim was prepared.
		late   bool
		living map[string]int
		runs   func(*occupants)
		// ends and released are set if the kubelet's and the reconciliation's call
		// succeed.
		ends, released bool
	}{
		"its pod idles":                         {claim: whole, living: map[string]int{"pod-c": 7}},
		"its pod idles, a MIG device":           {claim: mig, living: map[string]int{"pod-c": 7}},
		"its pod has ended, another one lives":  {claim: whole, living: map[string]int{"pod-d": 7}, ends: true, released: true},
		"a pod that joined it later idles":      {claim: whole, late: true, living: map[string]int{"pod-late": 7}},
		"a pod that the API has for it idles":   {claim: whole, object: late, living: map[string]int{"pod-late": 7}, ends: true},
		"its pod has ended, a process computes": {claim: whole, runs: func(o *occupants) { o.runs(0, 4711, "pod-unknown") }},
		"its pod has ended, the GPU hangs": {claim: whole, ends: true, runs: func(o *occupants) {
			o.errs[gpu.PCIAddress{}] = gpu.ErrTimeout
		}},
		"its pod idles, the GPU hangs": {claim: whole, living: map[string]int{"pod-c": 7}, runs: func(o *occupants) {
			o.errs[gpu.PCIAddress{}] = gpu.ErrTimeout
		}},
		"the driver cannot list processes": {claim: whole, ends: true, released: true, runs: func(o *occupants) {
			o.errs[gpu.PCIAddress{}] = gpu.ErrNotSupported
		}},
		"a pod of its PodGroup idles": {claim: whole, living: map[string]int{"pod-group": 7}, runs: func(o *occupants) {
			o.consumers["uid-c"] = []types.UID{"pod-group"}
		}},
		"the containers with its devices cannot be listed": {claim: whole, runs: func(o *occupants) { o.consumersErr = errors.New("permission denied") }},
		"the pods' processes cannot be listed":             {claim: whole, runs: func(o *occupants) { o.livingErr = errors.New("permission denied") }},
	} {
		for _, by := range []string{"the kubelet", "the reconciliation"} {
			t.Run(name+", "+by, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, dir, 1)
					o := w.occupied()
					o.living = map[string]int{}
					m := w.start()
					if c.claim == mig {
						mw := newMIGWorld(t, t.TempDir(), "dgx-h100")
						w, o = mw.world, mw.world.occupied()
						o.living = map[string]int{}
						m = w.start()
					}
					if _, err := m.Prepare(t.Context(), c.claim); err != nil {
						t.Fatal(err)
					}
					if c.late {
						must(t, m.Observe(t.Context(), w.listed(t.Context(), m), late))
					}
					held := w.listed(t.Context(), m)
					if c.living != nil {
						o.living = c.living
					}
					if c.runs != nil {
						c.runs(o)
					}
					var err error
					want := c.ends
					if by == "the kubelet" {
						err = m.Unprepare(t.Context(), c.claim.UID)
					} else {
						want = c.released
						object := c.object
						if object != nil {
							object = object.DeepCopy()
							object.Status.Allocation = nil
						}
						_, err = m.Release(t.Context(), held, object)
					}
					if freed := w.held(m) == ""; freed != want || (err == nil) != want {
						t.Errorf("%v, held:\n%s\nwant the devices to be free: %t", err, w.held(m), want)
					}
					if o.living["pod-c"] != 0 && (!errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "process 7 of the claim's pod still lives")) {
						t.Errorf("got %v, want %v that names the process", err, gpu.ErrInUse)
					}
				})
			})
		}
	}
}

// Another claim gets the device when the processes of the last one have ended.
func TestTheNextTenantWaitsForAnIdleContainer(t *testing.T) {
	for _, device := range []string{"gpu-00-00", "gpu-00-00-ts"} {
		w := newShareWorld(t, t.TempDir(), 1)
		o := w.occupied()
		o.living = map[string]int{"pod-a": 7}
		m := w.start()
		a, b := usedBy(pieces("a", piece{device: "gpu-00-00"}), "pod-a"), usedBy(pieces("b", piece{device: device}), "pod-b")
		if _, err := m.Prepare(once(), a); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Release(t.Context(), w.listed(t.Context(), m), nil); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("released while a process of its pod lives: %v", err)
		}
		if _, err := m.Prepare(once(), b); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("prepared for another claim: %v, want %v", err, gpu.ErrInUse)
		}
		o.living = map[string]int{}
		if released, err := m.Release(t.Context(), w.listed(t.Context(), m), nil); !released || err != nil {
			t.Errorf("released %t, %v after the processes have ended", released, err)
		}
		if _, err := m.Prepare(once(), b); err != nil {
			t.Error(err)
		}
	}
}

// A claim that pods use in turn for years has a record of bounded size.
func TestAClaimForgetsPodsThatHaveEnded(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	o := w.occupied()
	o.living = map[string]int{"pod-forced": 7}
	m := w.start()
	c := newClaim("c", "gpu-00-00")
	for _, pod := range []types.UID{"pod-first", "pod-forced", "pod-now"} {
		if _, err := m.Prepare(once(), usedBy(c, pod)); err != nil {
			t.Fatal(err)
		}
	}
	stale := w.listed(t.Context(), m)
	must(t, m.Observe(t.Context(), stale, usedBy(c, "pod-now", "pod-next")))
	want := []types.UID{"pod-forced", "pod-next", "pod-now"}
	if diff := cmp.Diff(want, w.listed(t.Context(), m).Pods); diff != "" {
		t.Errorf("pods of the claim (-want +got):\n%s", diff)
	}
	// An older comparison knows nothing of newer pods.
	must(t, m.Observe(t.Context(), stale, usedBy(c, "pod-first")))
	if diff := cmp.Diff(want, w.listed(t.Context(), m).Pods); diff != "" {
		t.Errorf("pods of the claim after a stale comparison (-want +got):\n%s", diff)
	}
}
