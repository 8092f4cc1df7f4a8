// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// foreign adds devices of another driver to a node: 80 slices of 128 are 10,240 devices.
func foreign(w *fleettest.World, node string, slices int) {
	const each = 128
	for i := range slices {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "other.example.com", NodeName: ptr.To(node), Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: int64(slices)},
		}}
		for j := range each {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("port-%d-%d", i, j)})
		}
		w.Slices = append(w.Slices, slice)
	}
}

// slow is a selector of 93 characters that takes hundreds of steps on each device.
const slow = "[1,2,3,4,5,6,7,8,9].all(a,[1,2,3,4,5,6,7,8,9].all(b,[1,2,3,4,5,6,7,8,9].all(c,a*b*c<0||a>0)))"

// Ten thousand devices and a slow selector hang a search without a limit.
func TestAnExplanationEndsWithinItsLimit(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	foreign(w, "a", 80)
	w.Repeat(3)
	w.Classes = append(w.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "other.example.com"`}}},
	}})
	const limit = 2 * time.Second
	for name, words := range map[string]string{
		"many devices of the class, and a slow selector": "class=other cel=" + slow + " && device.driver == 'none'",
		"many devices of other classes":                  "count=9",
	} {
		t.Run(name, func(t *testing.T) {
			s := w.Fleet().NewSearch(limit)
			claim := fleettest.Claim("new", words)
			verdicts, err := s.Verdicts(t.Context(), nil, claim)
			require.NoError(t, err)
			for _, v := range verdicts {
				if v.Fits() || v.Missing == nil && v.Problem == nil && !strings.Contains(words, "count=9") {
					t.Errorf("got %+v, want no node on which it fits or that misses nothing", v)
				}
				checks, err := s.Check(t.Context(), v.Node, claim)
				require.NoError(t, err)
				if n := len(checks[0].Devices) + checks[0].NotExamined; n != 10244 {
					t.Errorf("%s: %d devices are examined or named as not examined, want 10244", v.Node, n)
				}
			}
		})
	}
}

func TestUnexaminedDevicesAreNotReported(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	s := w.Fleet().NewSearch(1)
	claim := fleettest.Claim("new", "")
	verdicts, err := s.Verdicts(t.Context(), nil, claim)
	require.NoError(t, err)
	for _, v := range verdicts {
		if v.Fits() || !errors.Is(v.Problem, fleet.ErrNotExamined) {
			t.Errorf("got %+v", v)
		}
	}
	checks, err := s.Check(t.Context(), "a", claim)
	require.NoError(t, err)
	if c := checks[0]; c.NotExamined != 4 || len(c.Devices) != 0 || c.Meeting() != 0 {
		t.Errorf("got %+v", c)
	}
}

// The devices of one driver have their reasons also if another driver has ten thousand.
func TestDevicesOfAnotherDriverDoNotHideTheReason(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	foreign(w, "a", 80)
	w.Hold("a", "held", "count=4")
	s := w.Fleet().NewSearch(time.Minute)
	claim := fleettest.Claim("new", "")
	verdicts, err := s.Verdicts(t.Context(), nil, claim)
	require.NoError(t, err)
	if got := verdicts[0].Missing; !slices.Equal(got, []fleet.Condition{fleet.ConditionHolders}) {
		t.Errorf("got %+v", verdicts[0])
	}
	checks, err := s.Check(t.Context(), "a", claim)
	require.NoError(t, err)
	held, others := 0, 0
	for _, d := range checks[0].Devices {
		switch {
		case slices.Equal(d.Missing, []fleet.Condition{fleet.ConditionHolders}):
			held++
		case slices.Equal(d.Missing, []fleet.Condition{fleet.ConditionClass}):
			others++
		}
	}
	if held != 4 || others != 10240 {
		t.Errorf("%d devices are held and %d of another class, want 4 and 10240", held, others)
	}
}

// The allocator allocates no device of such a pool, whatever the claim.
func TestAPoolThatTheSchedulerRefuses(t *testing.T) {
	counters := func(names ...string) map[string]resourceapi.Counter {
		all := map[string]resourceapi.Counter{}
		for _, name := range names {
			all[name] = resourceapi.Counter{Value: resource.MustParse("1")}
		}
		return all
	}
	consumes := func(set string, names ...string) []resourceapi.DeviceCounterConsumption {
		return []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: counters(names...)}}
	}
	for name, tc := range map[string]struct {
		change func(w *fleettest.World)
		want   string
	}{
		"a device twice": {func(w *fleettest.World) {
			w.Slices[0].Spec.Devices = append(w.Slices[0].Spec.Devices, w.Slices[0].Spec.Devices[0])
		}, "it has the device gpu-18-00 twice"},
		"counters of no set": {func(w *fleettest.World) {
			w.Slices[0].Spec.Devices[0].ConsumesCounters = consumes("lost", "memory")
		}, "the device gpu-18-00 consumes counters of the set lost, which it lacks"},
		"a counter that the set lacks": {func(w *fleettest.World) {
			addSet(w, resourceapi.CounterSet{Name: "set", Counters: counters("memory")})
			w.Slices[0].Spec.Devices[0].ConsumesCounters = consumes("set", "memory", "lost")
		}, "the device gpu-18-00 consumes the counter lost, which the set set lacks"},
		"a counter set twice": {func(w *fleettest.World) {
			addSet(w, resourceapi.CounterSet{Name: "set", Counters: counters("memory")}, resourceapi.CounterSet{Name: "set", Counters: counters("memory")})
		}, "it has the counter set set twice"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share")
			tc.change(w)
			f := w.Fleet()
			claim := fleettest.Claim("new", "")
			found, err := f.Fit(t.Context(), "a", claim)
			if found != nil || err != nil && !errors.Is(err, gpu.ErrInvalid) {
				t.Fatalf("the allocator does not refuse the pool: %+v, %v", found, err)
			}
			verdicts, err := f.NewSearch(0).Verdicts(t.Context(), nil, claim)
			require.NoError(t, err)
			if v := verdicts[0]; !errors.Is(v.Problem, fleet.ErrPoolRefused) || !strings.Contains(v.Problem.Error(), tc.want) {
				t.Errorf("got %+v, want %s", v, tc.want)
			}
			checks, err := f.NewSearch(0).Check(t.Context(), "a", claim)
			require.NoError(t, err)
			for _, d := range checks[0].Devices {
				if reasons := f.Reasons(d, checks[0].Exactly); len(reasons) != 1 || !strings.Contains(reasons[0], tc.want) {
					t.Errorf("%s: %q, want %s", d.Device.ID.Device, reasons, tc.want)
				}
			}
		})
	}
}

// addSet adds a slice with counter sets to the pool of the node.
func addSet(w *fleettest.World, sets ...resourceapi.CounterSet) {
	slice := w.Slices[0].DeepCopy()
	slice.Name, slice.Spec.Devices, slice.Spec.SharedCounters = "counters", nil, sets
	w.Slices = append(w.Slices, slice)
	for _, s := range w.Slices {
		s.Spec.Pool.ResourceSliceCount = int64(len(w.Slices))
	}
}

// A class' selector that fails on a device of another driver ends the scheduling of the
// claim. So the device is not left out of the search.
func TestASelectorOfTheClassThatFailsOnAnotherDriver(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	foreign(w, "a", 1)
	w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})
	w.Classes = append(w.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.nvidia.com"].productName == "none"`}}},
	}})
	verdicts, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, fleettest.Claim("new", "class=bad"))
	require.NoError(t, err)
	problems := map[string]error{}
	for _, v := range verdicts {
		problems[v.Node] = v.Problem
	}
	if !errors.Is(problems["a"], gpu.ErrInvalid) || problems["empty"] != nil {
		t.Errorf("got %v on %v", problems, slices.Sorted(maps.Keys(problems)))
	}
}
