// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// occupy adds pods that hold claims and run, each as "node name words". The priority of a pod is its place
// among them.
func occupy(w *fleettest.World, held ...string) {
	for i, line := range held {
		words := strings.SplitN(line, " ", 3)
		w.Hold(words[0], words[1], strings.Join(words[2:], ""))
		pod := w.Pods[i]
		pod.Spec.NodeName, pod.Spec.Priority = words[0], ptr.To(int32(i))
		pod.Labels = map[string]string{"app": pod.Name}
		w.Claims[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: pod.Name, Controller: ptr.To(true)}}
	}
}

// budget returns a PodDisruptionBudget for the pods with a label.
func budget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func TestTheRulesOfARoom(t *testing.T) {
	four := []string{"n a", "n b", "n c", "n d"}
	controlledBy := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "x", Controller: ptr.To(true)}}
	}
	budgets := func(all ...*policyv1.PodDisruptionBudget) []*policyv1.PodDisruptionBudget { return all }
	for name, tc := range map[string]struct {
		held    []string
		claim   string
		budgets []*policyv1.PodDisruptionBudget
		change  func(w *fleettest.World, waiting *corev1.Pod)
		want    string
	}{
		"the lowest priority":            {four, "", nil, nil, "a"},
		"two of four":                    {four, "count=2", nil, nil, "a b"},
		"more devices than the node has": {four, "count=5", nil, nil, ""},
		"fewer pods before priority":     {[]string{"n a", "n b", "n both count=2"}, "count=2", nil, nil, "both"},
		"the youngest of a priority": {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			for i, pod := range w.Pods {
				pod.Spec.Priority, pod.Status.StartTime = nil, &metav1.Time{Time: time.Unix([]int64{5, 7, 9, 8}[i], 0)}
			}
		}, "c"},
		"only a lower priority": {four, "count=2", nil, func(_ *fleettest.World, p *corev1.Pod) { p.Spec.Priority = ptr.To(int32(1)) }, ""},
		"no pod of the system": {four, "count=4", nil, func(w *fleettest.World, p *corev1.Pod) {
			w.Pods[0].Spec.Priority, p.Spec.Priority = ptr.To(int32(2_000_000_000)), ptr.To(int32(2_000_001_000))
		}, ""},
		"one share of two":       {[]string{"n all count=3", "n large class=mps.nvidia.com memory=10Gi", "n small class=mps.nvidia.com memory=1Gi"}, "class=mps.nvidia.com memory=4Gi", nil, func(w *fleettest.World, _ *corev1.Pod) { w.Pods[0].Spec.Priority = ptr.To(int32(9)) }, "large"},
		"both shares of the GPU": {[]string{"n all count=3", "n large class=mps.nvidia.com memory=10Gi", "n small class=mps.nvidia.com memory=1Gi"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) { w.Pods[0].Spec.Priority = ptr.To(int32(1000)) }, "large small"},
		"a DaemonSet":            {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) { w.Pods[0].OwnerReferences = controlledBy("DaemonSet") }, "b"},
		"a file of the node": {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Pods[0].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, "b"},
		"a budget of none":                  {four, "", budgets(budget("a", 0)), nil, "b"},
		"a budget of one":                   {four, "", budgets(budget("a", 1)), nil, "a"},
		"a budget that is not observed yet": {four, "", budgets(func() *policyv1.PodDisruptionBudget { b := budget("a", 1); b.Generation = 2; return b }()), nil, "b"},
		"two budgets of a pod":              {four, "", budgets(budget("a", 1), budget("a", 1)), nil, "b"},
		"a pod that has not started":        {four, "", budgets(budget("a", 0)), func(w *fleettest.World, _ *corev1.Pod) { w.Pods[0].Status.Phase = corev1.PodPending }, "a"},
		"several pods of a budget": {four, "count=2", budgets(budget("x", 1)), func(w *fleettest.World, _ *corev1.Pod) {
			w.Pods[0].Labels["app"], w.Pods[1].Labels["app"] = "x", "x"
		}, "a c"},
		"a group ends together": {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			for _, pod := range w.Pods[:2] {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
			}
		}, "c"},
		"Kueue's group counts all of its pods": {four, "count=3", nil, func(w *fleettest.World, _ *corev1.Pod) {
			for _, pod := range w.Pods[1:] {
				pod.Labels["kueue.x-k8s.io/pod-group-name"] = "g"
			}
		}, "b c d"},
		"a claim of two pods":            {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) { share(w, "other", 0) }, "a other"},
		"a claim of a pod that may stay": {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) { share(w, "other", 1000) }, ""},
		"a claim of an unknown pod": {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			share(w, "other", 0)
			w.Pods = w.Pods[:1]
		}, ""},
		"a claim without pods": {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) { w.Claims[0].Status.ReservedFor = nil }, ""},
		"a claim of a PodGroup": {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Claims[0].Status.ReservedFor[0].APIGroup, w.Claims[0].Status.ReservedFor[0].Resource = "scheduling.k8s.io", "podgroups"
		}, ""},
		"a claim that the next pod of a controller names too": {[]string{"n a count=4"}, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Claims[0].OwnerReferences, w.Pods[0].OwnerReferences = nil, controlledBy("ReplicaSet")
		}, ""},
		"a pod that ends already": {four, "count=2", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Pods[2].DeletionTimestamp = &metav1.Time{}
		}, "a (c ends)"},
		"the cpu of the node": {four, "", nil, func(w *fleettest.World, p *corev1.Pod) {
			w.Nodes[0].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("9")}
			for _, pod := range append(w.Pods, p) {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
			}
			w.Pods[0].Spec.Containers[0].Resources.Requests = nil
			w.Nodes[0].Status.Allocatable["cpu"] = resource.MustParse("3")
		}, "b"},
		"a selector of nodes": {four, "", nil, func(_ *fleettest.World, p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, ""},
		"a taint of the node": {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		}, ""},
		"a taint of the device": {four, "", nil, func(w *fleettest.World, _ *corev1.Pod) {
			w.Taint(w.Claims[0].Status.Allocation.Devices.Results[0].Device, "xid-79")
		}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "n=t4 share")
			occupy(w, tc.held...)
			waiting := fleettest.Pod("new")
			waiting.Spec.Priority = ptr.To(int32(100))
			if tc.change != nil {
				tc.change(w, waiting)
			}
			found, err := w.Fleet().NewSearch(0).Room(t.Context(), waiting, fleet.RoomRules{Budgets: tc.budgets}, fleettest.Claim("new", tc.claim))
			require.NoError(t, err)
			got := namesOf(found.Pods)
			for _, pod := range found.Ending {
				got += fmt.Sprintf(" (%s ends)", pod.Name)
			}
			if got != tc.want || found.Found() != (tc.want != "") || !found.Complete {
				t.Errorf("got %q, complete %t, want %q", got, found.Complete, tc.want)
			}
		})
	}
}

// share lets another pod use the first claim.
func share(w *fleettest.World, name string, priority int32) {
	other := fleettest.Pod(w.Claims[0].Name)
	other.Name, other.UID, other.Spec.NodeName, other.Spec.Priority = name, "other", w.Pods[0].Spec.NodeName, &priority
	w.Pods = append(w.Pods, other)
	w.Claims[0].Status.ReservedFor = append(w.Claims[0].Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: "other"})
}

// The scheduler itself ends pods for cpu, so pods of other nodes need not.
func TestARoomIsNotForOtherResources(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	occupy(w, "b all count=4")
	w.Nodes[0].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}
	waiting := fleettest.Pod("new")
	waiting.Spec.Priority, waiting.Spec.NodeSelector = ptr.To(int32(100)), map[string]string{"gpus": "free"}
	waiting.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
	w.Nodes[0].Labels = waiting.Spec.NodeSelector
	found, err := w.Fleet().NewSearch(0).Room(t.Context(), waiting, fleet.RoomRules{}, fleettest.Claim("new", ""))
	require.NoError(t, err)
	want := []fleet.Verdict{{Node: "a", Excluded: []string{"it has 1 of cpu free, less than 2"}}}
	if diff := cmp.Diff(want, found.Lacking, cmp.AllowUnexported(fleet.Verdict{})); diff != "" || found.Found() {
		t.Errorf("found %t (-want +got):\n%s", found.Found(), diff)
	}
}

// A search that ends early returns the smallest set that it has found, and says so.
func TestARoomThatIsNotTheSmallestSaysSo(t *testing.T) {
	w := fleettest.New(t, "n=t4 share")
	occupy(w, "n a", "n b", "n c", "n d")
	waiting := fleettest.Pod("new")
	waiting.Spec.Priority = ptr.To(int32(100))
	found, err := w.Fleet().NewSearch(1).Room(t.Context(), waiting, fleet.RoomRules{}, fleettest.Claim("new", "count=2"))
	require.NoError(t, err)
	if found.Complete || found.Found() {
		t.Errorf("got %+v", found)
	}
}

// A fleet of 1,000 nodes, each of whose 8 GPUs has a pod of its own.
func BenchmarkRoom(b *testing.B) {
	w := fleettest.New(b, "n=dgx-h100 share")
	for i := range 8 {
		w.Hold("n", fmt.Sprintf("p-%d", i), "")
	}
	w.Repeat(1000)
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Spec.Priority = w.Claims[i].Status.Allocation.Devices.Results[0].Pool, ptr.To(int32(i%77))
	}
	f, waiting := w.Fleet(), fleettest.Pod("new")
	waiting.Spec.Priority = ptr.To(int32(100))
	for _, words := range []string{"count=1", "count=2", "count=4", "count=8", "class=mps.nvidia.com memory=20Gi"} {
		b.Run(words, func(b *testing.B) {
			for b.Loop() {
				found, err := f.NewSearch(0).Room(b.Context(), waiting, fleet.RoomRules{}, fleettest.Claim("new", words))
				if require.NoError(b, err); !found.Complete || !found.Found() {
					b.Fatalf("got %+v", found)
				}
			}
		})
	}
}
