// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// listed returns the only held claim.
func (w *world) listed(ctx context.Context, m *claim.Manager) claim.Claim {
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
				must(t, errOf(m.Prepare(t.Context(), prepared)))
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
				require.Same(t, "left", before, w.left(m))
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
			must(t, errOf(m.Prepare(t.Context(), c)))
			held, notAllocated := w.listed(t.Context(), m), newClaim("c")
			notAllocated.Status.Allocation = nil

			must(t, m.Unprepare(t.Context(), c.UID))
			if released, err := m.Release(t.Context(), held, notAllocated); released || err != nil {
				t.Errorf("unprepared meanwhile: released %t, %v", released, err)
			}
			must(t, errOf(m.Prepare(t.Context(), newClaim("c", anew))))
			if released, err := m.Release(t.Context(), held, notAllocated); released || err != nil {
				t.Errorf("prepared anew meanwhile: released %t, %v", released, err)
			}
			require.Same(t, "held", "team-a/c Prepared "+anew+"\n", w.held(m))
			if released, err := m.Release(t.Context(), w.listed(t.Context(), m), notAllocated); !released || err != nil {
				t.Errorf("listed again: released %t, %v", released, err)
			}
		})
	}
}

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
		"its pod idles":               {claim: whole, living: map[string]int{"pod-c": 7}},
		"its pod idles, a MIG device": {claim: mig, living: map[string]int{"pod-c": 7}},
		"a container of its pod never started": {claim: whole, living: map[string]int{"pod-c": 7}, ends: true, runs: func(o *occupants) {
			o.stubs = map[int]types.UID{7: "pod-c"}
		}},
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
		"a pod that the kubelet knows idles": {claim: whole, living: map[string]int{"pod-joined": 7}, runs: func(o *occupants) {
			o.kubelet = map[types.UID][]types.UID{"uid-c": {"pod-c", "pod-joined"}}
		}},
		"a pod that the kubelet has forgotten shows its devices": {claim: whole, living: map[string]int{"pod-group": 7}, runs: func(o *occupants) {
			o.kubelet = map[types.UID][]types.UID{"uid-c": {"pod-c"}}
			o.consumers["uid-c"] = []types.UID{"pod-group"}
		}},
		"a process whose pod cannot be read computes": {claim: whole, runs: func(o *occupants) {
			o.runs(0, 4711, "pod-unknown")
			o.taskErr = errors.New("too many open files")
		}},
		"its pod lives in processes that end at once":      {claim: whole, living: map[string]int{"pod-c": 0}},
		"the containers with its devices cannot be listed": {claim: whole, living: map[string]int{"pod-d": 7}, runs: func(o *occupants) { o.consumersErr = errors.New("permission denied") }},
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
					must(t, errOf(m.Prepare(t.Context(), c.claim)))
					if c.late {
						must(t, m.RecordPods(t.Context(), w.listed(t.Context(), m), late))
					}
					held := w.listed(t.Context(), m)
					if c.living != nil {
						o.living = maps.Clone(c.living)
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
					if _, lives := o.living["pod-c"]; lives && !strings.Contains(fmt.Sprint(err), "of the claim's pod still lives") {
						t.Errorf("got %v, which does not say that the pod lives", err)
					}
					if by != "the kubelet" && len(o.living) != len(c.living) {
						t.Error("a process of a pod that runs was ended")
					}
					if o.living["pod-c"] != 0 && (!errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "process 7 of the claim's pod still lives")) {
						t.Errorf("got %v, want %v that names the process", err, gpu.ErrInUse)
					}
				})
			})
		}
	}
}

// The kernel shows the names of claims only.
func TestAClaimIsReleasedWhileAPodOfALaterOneWithItsNameLives(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet  map[types.UID][]types.UID
		released bool
	}{
		"the kubelet has the pod for the later claim": {map[types.UID][]types.UID{"uid-later": {"pod-later"}}, true},
		"the kubelet has the pod for a third claim":   {map[types.UID][]types.UID{"uid-later": {"pod-d"}, "uid-third": {"pod-later"}}, false},
		"the kubelet has the pod for both claims":     {map[types.UID][]types.UID{"uid-later": {"pod-later"}, "uid-c": {"pod-later"}}, false},
		"the kubelet's pods cannot be read":           {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			o := w.occupied()
			o.living = map[string]int{}
			m := w.start()
			first, later, third := usedBy(pieces("c", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-c"), usedBy(pieces("later", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-later"), usedBy(pieces("third", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-later")
			later.Name = first.Name
			for _, claim := range []*resourceapi.ResourceClaim{first, later, third} {
				must(t, errOf(m.Prepare(t.Context(), claim)))
			}
			o.kubelet, o.living = c.kubelet, map[string]int{"pod-later": 7}
			o.consumers["uid-c"], o.consumers["uid-later"] = []types.UID{"pod-later"}, []types.UID{"pod-later"}
			all, err := m.Held(t.Context())
			must(t, err)
			held := all[slices.IndexFunc(all, func(h claim.Claim) bool { return h.UID == "uid-c" })]
			released, err := m.Release(t.Context(), held, nil)
			if released != c.released || !released && !errors.Is(err, gpu.ErrInUse) {
				t.Errorf("released %t, %v, want %t", released, err, c.released)
			}
		})
	}
}

// The kubelet ends a claim, and a pod of an earlier one with its name lives.
func TestAClaimIsUnpreparedWhileAPodOfAnEarlierOneWithItsNameLives(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	o := w.occupied()
	o.living = map[string]int{}
	m := w.start()
	earlier, c := usedBy(newClaim("earlier", "gpu-00-00"), "pod-earlier"), usedBy(newClaim("c", "gpu-01-00"), "pod-c")
	earlier.Name = c.Name
	must(t, errOf(m.Prepare(t.Context(), earlier)))
	must(t, errOf(m.Prepare(t.Context(), c)))
	o.kubelet, o.living = map[types.UID][]types.UID{"uid-c": {"pod-c"}}, map[string]int{"pod-earlier": 7}
	o.consumers["uid-c"], o.consumers["uid-earlier"] = []types.UID{"pod-earlier"}, []types.UID{"pod-earlier"}
	must(t, m.Unprepare(t.Context(), c.UID))
	require.Same(t, "held", "team-a/c Prepared gpu-00-00\n", w.held(m))
}

// The kubelet may unprepare a claim before its repair begins.
func TestOnlyAPreparedClaimIsPreparedAgain(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	m, c := w.start(), newClaim("c", "gpu-00-00")
	require.Error(t, "absent", errOf(m.PrepareAgain(t.Context(), c)), claim.ErrUnprepared)
	wantNothing(t, w.held(m))
	must(t, errOf(m.Prepare(t.Context(), c)))
	must(t, os.Remove(filepath.Join(w.dir, "cdi", driver+"-claim-uid-c.json")))
	must(t, errOf(m.PrepareAgain(t.Context(), c)))
	require.Same(t, "files", preparedFiles(c), w.files())
	require.Error(t, "allocated anew", errOf(m.PrepareAgain(t.Context(), newClaim("c", "gpu-01-00"))), claim.ErrUnprepared)
	require.Same(t, "held", "team-a/c Prepared gpu-00-00\n", w.held(m))
}

// preparedForAPod returns a world with a prepared claim, whose pod has no process.
func preparedForAPod(t *testing.T, dir string) (*world, *occupants, *claim.Manager, *resourceapi.ResourceClaim) {
	t.Helper()
	w := newWorld(t, dir, 1)
	o := w.occupied()
	o.living = map[string]int{}
	m := w.start()
	c := usedBy(newClaim("c", "gpu-00-00"), "pod-c")
	must(t, errOf(m.Prepare(t.Context(), c)))
	return w, o, m, c
}

// Without its record a claim has the pods that the kubelet lists and those that show its name: the kubelet may have
// forgotten one.
func TestAClaimWithoutItsRecordIsKeptWhileAPodWithItsNameLives(t *testing.T) {
	for _, kubelet := range []map[types.UID][]types.UID{{"uid-c": {"pod-c"}}, {}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			w, o, m, c := preparedForAPod(t, dir)
			must(t, os.Remove(w.recordPath(c)))
			o.kubelet, o.living, o.consumers["uid-c"] = kubelet, map[string]int{"pod-forgotten": 7}, []types.UID{"pod-forgotten"}
			require.Error(t, "while it lives", m.Unprepare(t.Context(), c.UID), gpu.ErrInUse)
			require.Same(t, "held", "team-a/c Unrecorded gpu-00-00\n", w.held(m))
			o.living = map[string]int{}
			must(t, m.Unprepare(t.Context(), c.UID))
			wantNothing(t, w.held(m))
		})
	}
}

// A GPU that has no time to answer need not hang.
func TestAClaimIsKeptIfTheCallEndsWhileItsGPUIsRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, o, m, c := preparedForAPod(t, dir)
		o.hangs[gpu.PCIAddress{}] = true
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := m.Unprepare(short, c.UID); err == nil || w.held(m) == "" {
			t.Errorf("%v, held %q after a call of 3 seconds", err, w.held(m))
		}
		if err := m.Unprepare(t.Context(), c.UID); err != nil || w.held(m) != "" {
			t.Errorf("%v, held %q after a call with time", err, w.held(m))
		}
	})
}

// A container without rights can hide its devices, in a user namespace of its own. The API
// server knows the PodGroup only, and after a forced deletion the kubelet not even the pod.
func TestAPodThatWasSeenOnceKeepsTheClaim(t *testing.T) {
	for name, see := range map[string]func(o *occupants, pods ...types.UID){
		"the kubelet": func(o *occupants, pods ...types.UID) { o.kubelet = map[types.UID][]types.UID{"uid-c": pods} },
		"the kernel":  func(o *occupants, pods ...types.UID) { o.consumers["uid-c"] = pods },
	} {
		for _, by := range []string{"the kubelet", "the reconciliation"} {
			t.Run("seen by "+name+", ended by "+by, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, dir, 1)
					o := w.occupied()
					o.living = map[string]int{"pod-of-group": 7}
					m := w.start()
					c := usedByGroup(newClaim("c", "gpu-00-00"))
					must(t, errOf(m.Prepare(t.Context(), c)))
					see(o, "pod-of-group")
					must(t, m.RecordConsumers(t.Context()))
					see(o)
					must(t, m.RecordConsumers(t.Context()))
					must(t, m.RecordPods(t.Context(), w.listed(t.Context(), m), c))
					end := func() (err error) {
						if by == "the kubelet" {
							return m.Unprepare(t.Context(), c.UID)
						}
						_, err = m.Release(t.Context(), w.listed(t.Context(), m), nil)
						return err
					}
					if err := end(); !errors.Is(err, gpu.ErrInUse) || w.held(m) == "" {
						t.Errorf("%v, want %v while the pod lives", err, gpu.ErrInUse)
					}
					o.living = map[string]int{}
					if err := end(); err != nil || w.held(m) != "" {
						t.Errorf("%v, held %q after the end of the pod", err, w.held(m))
					}
				})
			})
		}
	}
}

// Between two containers a pod of CRI-O has no process.
func TestAClaimRemembersAPodThatTheKubeletKnows(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	o := w.occupied()
	o.living = map[string]int{}
	o.kubelet = map[types.UID][]types.UID{"uid-c": {"pod-of-group"}}
	m := w.start()
	c := usedByGroup(newClaim("c", "gpu-00-00"))
	must(t, errOf(m.Prepare(once(), c)))
	require.Same(t, "pods of the claim at once", []types.UID{"pod-of-group"}, w.listed(t.Context(), m).Pods)
	for _, want := range [][]types.UID{{"pod-of-group"}, nil} {
		must(t, m.RecordConsumers(t.Context()))
		must(t, m.RecordPods(t.Context(), w.listed(t.Context(), m), c))
		require.Same(t, "pods of the claim", want, w.listed(t.Context(), m).Pods)
		o.kubelet = map[types.UID][]types.UID{}
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
		must(t, errOf(m.Prepare(once(), usedBy(c, pod))))
	}
	stale := w.listed(t.Context(), m)
	must(t, m.RecordPods(t.Context(), stale, usedBy(c, "pod-now", "pod-next")))
	want := []types.UID{"pod-forced", "pod-next", "pod-now"}
	require.Same(t, "pods of the claim", want, w.listed(t.Context(), m).Pods)
	// An older comparison knows nothing of newer pods.
	must(t, m.RecordPods(t.Context(), stale, usedBy(c, "pod-first")))
	require.Same(t, "pods of the claim after a stale comparison", want, w.listed(t.Context(), m).Pods)
}

// After a restart the agent works without the API server. It must know what to charge,
// to which class, and whose processes run.
func TestAHeldClaimHasItsClassesSlotsAndPods(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	m := w.start()
	c := pieces("c", piece{request: "slots", device: "gpu-00-00-ts"}, piece{request: "any/small", device: "gpu-01-00", memory: "20Gi"})
	c.Status.Allocation.Devices.Results[0].ConsumedCapacity["slots"] = resource.MustParse("3")
	memory := &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("20Gi")}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{
		{Name: "slots", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "timeslice.nvidia.com"}},
		{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "large", DeviceClassName: "gpu.nvidia.com"}, {Name: "small", DeviceClassName: "mps.nvidia.com", Capacity: memory}}},
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "b", UID: "uid-b"}, {Resource: "pods", Name: "a", UID: "uid-a"}}
	must(t, errOf(m.Prepare(once(), c)))
	held, err := w.start().Held(once())
	if err != nil || len(held) != 1 {
		t.Fatalf("held %v, %v; want one claim", held, err)
	}
	slots, share := held[0].Devices[0], held[0].Devices[1]
	if slots.Class != "timeslice.nvidia.com" || slots.Terms.Slots != 3 || share.Class != "mps.nvidia.com" || share.Terms.Slots != 0 {
		t.Errorf("3 slots of timeslice.nvidia.com and a share of mps.nvidia.com are %+v %+v and %+v %+v", slots, slots.Terms, share, share.Terms)
	}
	if want := []types.UID{"uid-a", "uid-b"}; !slices.Equal(held[0].Pods, want) {
		t.Errorf("pods %v, want %v", held[0].Pods, want)
	}
}
