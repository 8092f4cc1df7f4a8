// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestNodesThatExcludeThePod(t *testing.T) {
	four := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("2")}
	requests := func(pod *corev1.Pod, name corev1.ResourceName, amount string) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node, *corev1.Pod)
		want   []string
	}{
		"a node without allocatable resources": {func(_ *corev1.Node, pod *corev1.Pod) { requests(pod, "cpu", "64") }, nil},
		"a taint": {func(node *corev1.Node, _ *corev1.Pod) {
			node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
		}, []string{"the pod does not tolerate its taint team=b:NoSchedule"}},
		"a taint that the pod tolerates": {func(node *corev1.Node, pod *corev1.Pod) {
			node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
			pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		}, nil},
		"a taint that only discourages": {func(node *corev1.Node, _ *corev1.Pod) {
			node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, nil},
		"cordoned": {func(node *corev1.Node, _ *corev1.Pod) { node.Spec.Unschedulable = true }, []string{"it is cordoned"}},
		"another label": {func(_ *corev1.Node, pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} },
			[]string{"it does not match the node selector or node affinity of the pod"}},
		"too few processors": {func(node *corev1.Node, pod *corev1.Pod) { node.Status.Allocatable = four; requests(pod, "cpu", "3") },
			[]string{"it has 2 of cpu free, less than 3"}},
		"enough processors": {func(node *corev1.Node, pod *corev1.Pod) { node.Status.Allocatable = four; requests(pod, "cpu", "2") }, nil},
		"a resource that it lacks": {func(node *corev1.Node, pod *corev1.Pod) {
			node.Status.Allocatable = four
			requests(pod, "example.com/fpga", "1")
		}, []string{"it has 0 of example.com/fpga free, less than 1"}},
		"an extended resource of a class": {func(node *corev1.Node, pod *corev1.Pod) {
			node.Status.Allocatable = four
			requests(pod, "deviceclass.resource.kubernetes.io/gpu.nvidia.com", "1")
		}, nil},
		"an extended resource of a class that a device plugin served": {func(node *corev1.Node, pod *corev1.Pod) {
			const name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2"), name: resource.MustParse("0")}
			requests(pod, name, "1")
		}, nil},
		"an extended resource that a device plugin serves": {func(node *corev1.Node, pod *corev1.Pod) {
			const name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2"), name: resource.MustParse("1")}
			requests(pod, name, "2")
		}, []string{"it has 1 of deviceclass.resource.kubernetes.io/gpu.nvidia.com free, less than 2"}},
		"processors for the pod itself, which is placed there": {func(node *corev1.Node, pod *corev1.Pod) {
			node.Status.Allocatable, pod.Spec.NodeName = four, "a"
			requests(pod, "cpu", "3")
		}, nil},
		"too many pods": {func(node *corev1.Node, _ *corev1.Pod) {
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		}, []string{"it has 0 of pods free, less than 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share")
			pod := fleettest.Pod("new")
			for name, phase := range map[string]corev1.PodPhase{"running": corev1.PodRunning, "ended": corev1.PodSucceeded, "failed": corev1.PodFailed} {
				placed := fleettest.Pod(name)
				placed.Spec.NodeName, placed.Status.Phase = "a", phase
				requests(placed, "cpu", "2")
				w.Pods = append(w.Pods, placed)
			}
			tc.change(w.Nodes[0], pod)
			all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), pod, fleettest.Claim("new", ""))
			require.NoError(t, err)
			if diff := cmp.Diff(tc.want, all[0].Excluded); diff != "" {
				t.Errorf("excluded (-want +got):\n%s", diff)
			}
			if all[0].Fits() != (tc.want == nil) {
				t.Errorf("fits: %t", all[0].Fits())
			}
		})
	}
}

func TestAClaimWithDevicesKeepsPodsOnItsNode(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	w.Hold("a", "held", "")
	held := w.Claims[0]
	held.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
	}}}
	all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), fleettest.Pod("new"), fleettest.Claim("new", ""), held)
	require.NoError(t, err)
	if len(all) != 2 || all[0].Node != "a" || !all[0].Fits() || all[1].Fits() {
		t.Fatalf("got %+v", all)
	}
	if diff := cmp.Diff([]string{"claim held of the pod has its devices on another node"}, all[1].Excluded); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
}

// A search on each of 1,000 nodes would take a quarter of an hour.
func TestASearchThatDoesNotEndIsNotRepeatedOnAllNodes(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share")
	w.Repeat(20)
	claim := fleettest.Claim("new", "memory=70Gi")
	for i := range 12 {
		request := claim.Spec.Devices.Requests[0]
		request.Name = fmt.Sprintf("gpu-%d", i)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	f := fleet.New(w.Objects, fleet.Options{Driver: "gpu.nvidia.com", Features: fleet.FeaturesOf(w.Objects), SearchLimit: 50 * time.Millisecond})
	all, err := f.NewSearch(0).Verdicts(t.Context(), nil, claim)
	require.NoError(t, err)
	searched := 0
	for _, v := range all {
		if !errors.Is(v.Problem, gpu.ErrTimeout) {
			t.Fatalf("got %+v", v)
		}
		if !errors.Is(v.Problem, fleet.ErrNotExamined) {
			searched++
		}
	}
	if len(all) != 20 || searched != 5 {
		t.Errorf("%d of %d nodes are searched", searched, len(all))
	}
}

func TestPlan(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	w.Hold("a", "held", "count=3")
	w.Nodes[1].Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("110")}
	f := w.Fleet()
	p := f.NewPlan()
	place := func(name, words string) string {
		pod := fleettest.Pod(name)
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		node, err := p.Place(t.Context(), pod, fleettest.Claim(name, words))
		require.NoError(t, err)
		return node
	}
	var got []string
	for i, words := range []string{"", "", "count=9", "", "", "class=mps.nvidia.com memory=1Gi"} {
		got = append(got, place(fmt.Sprint(i), words))
	}
	// The third pod has too few devices, and the fifth no processors.
	if diff := cmp.Diff([]string{"a", "b", "", "b", "", ""}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if whole := held(p.Fleet()); whole != 6 {
		t.Errorf("the plan holds %d GPUs, want 6", whole)
	}
	if before := held(f); before != 3 {
		t.Errorf("the fleet itself holds %d GPUs, want 3", before)
	}
}

// Pods that share a claim run on the node of the first one.
func TestPlanKeepsPodsOfOneClaimTogether(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	w.Nodes[0].Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
	p := w.Fleet().NewPlan()
	claim := fleettest.Claim("shared", "")
	for i, want := range []string{"a", "a", ""} {
		if node, err := p.Place(t.Context(), fleettest.Pod(fmt.Sprint(i)), claim); err != nil || node != want {
			t.Errorf("pod %d is on %q, %v, want %q", i, node, err, want)
		}
	}
	if n := held(p.Fleet()); n != 1 {
		t.Errorf("the plan holds %d GPUs, want 1", n)
	}
}

func held(f *fleet.Fleet) int {
	n := 0
	for _, node := range f.Nodes() {
		for _, g := range node.GPUs {
			if g.Mode != fleet.ModeFree {
				n++
			}
		}
	}
	return n
}
