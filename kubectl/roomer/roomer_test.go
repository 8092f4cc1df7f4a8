// SPDX-License-Identifier: Apache-2.0

package roomer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// world is a cluster with one node. Its GPUs are in use by the pods three and half.
type world struct {
	*fleettest.World
	*fake.Clientset
	t *testing.T
	// ending is the time that a pod needs to end, and refused a pod that is not evicted.
	ending  time.Duration
	refused string

	mu      sync.Mutex
	evicted []string
}

func newWorld(t *testing.T) *world {
	w := &world{World: fleettest.New(t, "a=t4 share"), t: t, ending: 5 * time.Second}
	w.Hold("a", "three", "count=3")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi")
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Spec.Priority = "a", ptr.To(int32(50-50*i))
		w.Claims[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: pod.Name, Controller: ptr.To(true)}}
	}
	w.wait("high", 100, "class=mps.nvidia.com memory=10Gi")
	return w
}

// wait adds a pod that waits, whose claim tolerates the taint of a room.
func (w *world) wait(name string, priority int32, words string) {
	pod, claim := fleettest.Pod(name), fleettest.Claim(name, words)
	pod.Spec.Priority = &priority
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	claim.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintRoom, Operator: resourceapi.DeviceTolerationOpExists}}
	w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, claim)
}

// serve makes the API server.
func (w *world) serve() {
	w.Clientset = fake.NewClientset()
	add(w, w.Nodes)
	add(w, w.Pods)
	add(w, w.Claims)
	add(w, w.Classes)
	add(w, w.Slices)
	add(w, w.TaintRules)
	w.PrependReactor("create", "pods", w.evict)
}

func add[T runtime.Object](w *world, all []T) {
	for _, o := range all {
		require.NoError(w.t, w.Tracker().Add(o))
	}
}

// evict ends a pod. Some time later, the scheduler places the pod of the highest priority.
func (w *world) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	eviction, ok := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	switch {
	case !ok:
		return false, nil, nil
	case len(eviction.DeleteOptions.DryRun) > 0:
		return true, nil, nil
	case eviction.Name == w.refused:
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), eviction.Name, nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.evicted = append(w.evicted, eviction.Name)
	time.AfterFunc(w.ending, func() {
		require.NoError(w.t, w.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", eviction.Name))
		require.NoError(w.t, w.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), "default", eviction.Name))
	})
	time.AfterFunc(w.ending+3*time.Second, func() {
		var first *corev1.Pod
		for _, pod := range w.Pods {
			now, err := w.CoreV1().Pods("default").Get(context.Background(), pod.Name, metav1.GetOptions{})
			if err == nil && now.Spec.NodeName == "" && (first == nil || *now.Spec.Priority > *first.Spec.Priority) {
				first = now.DeepCopy()
			}
		}
		if w.refused == "" && first != nil {
			first.Spec.NodeName = "a"
			require.NoError(w.t, w.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), first, "default"))
		}
	})
	return true, nil, nil
}

// run runs a controller for some time of the bubble, which must not end as a round begins, and do a second before its
// end. It returns its metrics.
func (w *world) run(change func(*Options), after time.Duration, do func()) map[string]float64 {
	w.t.Helper()
	o := Options{Client: w, Driver: v1alpha1.DriverName, Instance: "i", After: 2 * time.Minute, Timeout: 5 * time.Minute, EvictionsPerHour: 10}
	if change != nil {
		change(&o)
	}
	registry := prometheus.NewRegistry()
	c := New(o, registry)
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	if do != nil {
		time.AfterFunc(after-time.Second, do)
	}
	c.Run(ctx)
	synctest.Wait() // for what timers have written
	families, err := registry.Gather()
	require.NoError(w.t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[strings.TrimPrefix(f.GetName(), "gpu_dra_room")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

func (w *world) ended() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.evicted, " ")
}

// rules returns the names of the rules.
func (w *world) rules() (names []string) {
	list, err := w.ResourceV1().DeviceTaintRules().List(context.Background(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, rule := range list.Items {
		names = append(names, rule.Name)
	}
	return names
}

// events returns the events, and fails the test if one names another pod.
func (w *world) events() (all []string) {
	w.t.Helper()
	list, err := w.EventsV1().Events("").List(context.Background(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s %s %s: %s", e.Regarding.Name, e.Type, e.Reason, e.Note))
		for _, pod := range w.Pods {
			if pod.Name != e.Regarding.Name && strings.Contains(e.Note, pod.Name+" ") || strings.Contains(e.Note, pod.Namespace+"/") {
				w.t.Errorf("an event of %s names %s: %s", e.Regarding.Name, pod.Name, e.Note)
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestRoomIsMadeForAPodThatWaits(t *testing.T) {
	w := newWorld(t)
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		w.run(nil, time.Minute+59*time.Second, nil)
		if w.ended() != "" {
			t.Errorf("%s was evicted too early", w.ended())
		}
		kept := 0
		time.AfterFunc(2*time.Minute+2*time.Second, func() { kept = len(w.rules()) })
		metrics := w.run(nil, 3*time.Minute+10*time.Second, nil)
		if w.ended() != "half" || kept != 3 || w.rules() != nil {
			t.Errorf("evicted %q, %d devices kept, rules left: %v", w.ended(), kept, w.rules())
		}
		want := []string{
			"half Warning EvictedForRoom: evicted for a pod of a higher priority, which waited for its devices",
			"high Normal MakingRoom: 1 pod of a lower priority on node a will be evicted for this pod",
		}
		require.Same(t, "events", want, w.events())
		require.Same(t, "metrics", map[string]float64{"s_made_total": 1, "_evictions_total": 1, "_failures_total": 0, "_last_success_timestamp_seconds": float64(time.Now().Unix() - 10)}, metrics)
	})
}

func TestNoRoomIsMade(t *testing.T) {
	const tolerates = "high Warning NoRoom: 1 pod of a lower priority on node a would end for this pod, but its claims do not tolerate the taint gpu.nvidia.com/room, so another pod could get the devices first: "
	for name, tc := range map[string]struct {
		change  func(w *world)
		options func(*Options)
		want    []string
	}{
		"preemptionPolicy Never": {change: func(w *world) { w.Pods[2].Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }},
		"the same priority":      {change: func(w *world) { w.Pods[2].Spec.Priority = ptr.To(int32(0)) }},
		"not tried yet":          {change: func(w *world) { w.Pods[2].Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }},
		"no toleration": {change: func(w *world) { w.Claims[2].Spec.Devices.Requests[0].Exactly.Tolerations = nil },
			want: []string{tolerates + "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/explain.md#make-room-for-a-pod"}},
		"the budget": {change: func(w *world) { w.Claims[2].Spec.Devices.Requests = allGPUs() }, options: func(o *Options) { o.EvictionsPerHour = 1 },
			want: []string{"high Warning NoRoom: 2 pods of a lower priority on node a would end for this pod, but the limit of evictions in an hour (1) does not admit it"}},
		"dry run": {options: func(o *Options) { o.DryRun = true }, want: []string{
			"half Normal EvictedForRoom: dry run: would be evicted for a pod of a higher priority",
			"high Normal MakingRoom: dry run: 1 pod of a lower priority on node a would be evicted for this pod",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.change != nil {
				tc.change(w)
			}
			w.serve()
			synctest.Test(t, func(t *testing.T) {
				metrics := w.run(tc.options, 20*time.Minute+10*time.Second, nil)
				if diff := cmp.Diff(tc.want, w.events()); diff != "" || w.ended() != "" || w.rules() != nil || metrics["_failures_total"] != 0 {
					t.Errorf("evicted %q, rules %v, events:\n%s", w.ended(), w.rules(), diff)
				}
			})
		})
	}
}

// A set that may not be the smallest is not evicted.
func TestNoRoomIsMadeWithoutAProof(t *testing.T) {
	w := newWorld(t)
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Client: w, Driver: v1alpha1.DriverName, Instance: "i", EvictionsPerHour: 10}, prometheus.NewRegistry())
		c.due = map[types.UID]time.Time{}
		cluster := rows.New(w.Objects, v1alpha1.DriverName, nil)
		found, err := cluster.NewSearch(searchLimit).Room(t.Context(), w.Pods[2], fleet.RoomRules{}, w.Claims[2])
		require.NoError(t, err)
		found.Complete = false
		if c.begin(t.Context(), cluster, w.Pods[2], w.Claims[2:], found) || w.ended() != "" || len(w.events()) != 1 {
			t.Errorf("evicted %q, events %q", w.ended(), w.events())
		}
	})
}

// allGPUs are the requests of a claim that only the end of both pods admits.
func allGPUs() []resourceapi.DeviceRequest {
	requests := fleettest.Claim("all", "count=4").Spec.Devices.Requests
	requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintRoom, Operator: resourceapi.DeviceTolerationOpExists}}
	return requests
}

func TestTheBudgetIsOfAnHour(t *testing.T) {
	w := newWorld(t)
	w.wait("next", 90, "count=3")
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		var early string
		time.AfterFunc(time.Hour, func() { early = w.ended() })
		w.run(func(o *Options) { o.EvictionsPerHour = 1 }, 70*time.Minute+10*time.Second, nil)
		if early != "half" || w.ended() != "half three" {
			t.Errorf("evicted %q within an hour, and %q later", early, w.ended())
		}
	})
}

func TestRoomsOfANodeAreMadeOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	w.wait("next", 90, "count=3")
	w.ending = 4 * time.Minute
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		var early string
		time.AfterFunc(6*time.Minute, func() { early = w.ended() })
		w.run(nil, 15*time.Minute+10*time.Second, nil)
		if early != "half" || w.ended() != "half three" {
			t.Errorf("evicted %q at first, and %q later", early, w.ended())
		}
	})
}

// The next attempt could end pods again and again.
func TestARoomThatFailsIsUndoneAndNotRepeated(t *testing.T) {
	w := newWorld(t)
	w.Claims[2].Spec.Devices.Requests = allGPUs()
	w.refused = "three"
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		metrics := w.run(nil, 50*time.Minute+10*time.Second, nil)
		if w.ended() != "half" || w.rules() != nil || metrics["_failures_total"] != 1 {
			t.Errorf("evicted %q, rules %v, failures %v", w.ended(), w.rules(), metrics["_failures_total"])
		}
		if all := w.events(); len(all) != 3 || !strings.HasPrefix(all[2], "high Warning NoRoom: this pod did not get its node a") {
			t.Errorf("events: %q", all)
		}
	})
}

func TestAPodThatEndedByItselfWasNotEvicted(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		eviction, ok := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		return ok && len(eviction.DeleteOptions.DryRun) == 0, nil, apierrors.NewNotFound(corev1.Resource("pods"), "half")
	})
	synctest.Test(t, func(t *testing.T) {
		metrics := w.run(nil, 10*time.Minute+10*time.Second, nil)
		if all := strings.Join(w.events(), "\n"); metrics["_evictions_total"] != 0 || !strings.Contains(all, "MakingRoom") || strings.Contains(all, "EvictedForRoom") {
			t.Errorf("%v evictions, events:\n%s", metrics["_evictions_total"], all)
		}
	})
}

func TestAnEndRemovesTheRules(t *testing.T) {
	w := newWorld(t)
	w.ending = time.Minute
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		kept := 0
		metrics := w.run(nil, 2*time.Minute+10*time.Second, func() { kept = len(w.rules()) })
		if kept != 3 || w.rules() != nil || metrics["_failures_total"] != 0 || len(w.events()) != 2 {
			t.Errorf("%d devices were kept, rules left: %v, events %v", kept, w.rules(), w.events())
		}
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble: until the timers have ended
	})
}

func TestRulesOfAControllerThatDiedAreRemoved(t *testing.T) {
	w := newWorld(t)
	w.Pods = w.Pods[:2]
	rule := func(name, by, until string) *resourceapi.DeviceTaintRule {
		return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": by, v1alpha1.LabelRoom: "x"}, Annotations: map[string]string{v1alpha1.AnnotationRoomUntil: until},
		}}
	}
	w.TaintRules = []*resourceapi.DeviceTaintRule{
		rule("own", "gpu-room", "2000-01-01T00:05:00Z"), rule("of-a-command", "kubectl-gpu", "2000-01-01T00:05:00Z"),
		rule("of-a-killed-command", "kubectl-gpu", "1999-12-31T23:59:00Z"), rule("of-another-program", "x", "1999-12-31T23:59:00Z"),
	}
	w.serve()
	synctest.Test(t, func(t *testing.T) {
		w.run(nil, time.Second, nil)
		require.Same(t, "rules", []string{"of-a-command", "of-another-program"}, w.rules())
	})
}
