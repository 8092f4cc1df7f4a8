// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const half = " class=mps.nvidia.com memory=7Gi"

// fragment is like occupy, and removes the pods whose names begin with x. They leave holes.
func fragment(w *fleettest.World, held ...string) {
	occupy(w, held...)
	isHole := func(name string) bool { return strings.HasPrefix(name, "x") }
	w.Pods = slices.DeleteFunc(w.Pods, func(pod *corev1.Pod) bool { return isHole(pod.Name) })
	for i := len(w.Claims) - 1; i >= 0; i-- {
		if isHole(w.Claims[i].Name) {
			w.Claims = slices.Delete(w.Claims, i, i+1)
		}
	}
}

// placesOf returns the moves as "pod>node", after the node of the waiting pod.
func placesOf(moves fleet.Moves) string {
	all := []string{moves.Node}
	for _, move := range moves.Pods {
		all = append(all, move.Pod.Name+">"+move.Node)
	}
	return strings.Join(all, " ")
}

func TestDefragment(t *testing.T) {
	// Each GPU of the node n has a half in use.
	halves := []string{"n a" + half, "n x1" + half, "n b" + half, "n x2" + half, "n c" + half, "n x3" + half, "n d" + half}
	full := []string{"n all count=3", "n a class=mps.nvidia.com memory=9Gi"}
	onlyOn := func(node string, pods ...*corev1.Pod) {
		for _, pod := range pods {
			pod.Spec.NodeSelector = map[string]string{"name": node}
		}
	}
	cpu := func(w *fleettest.World, node int, has string, pods ...*corev1.Pod) {
		w.Nodes[node].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(has), "pods": resource.MustParse("99")}
		for _, pod := range pods {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}
	}
	stays := func(pods ...*corev1.Pod) {
		for _, pod := range pods {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "x", Controller: ptr.To(true)}}
		}
	}
	// Each GPU of the node m has a quarter in use.
	var parts []string
	for _, pod := range []string{"a", "b", "c", "d"} {
		for _, name := range []string{pod, "x1" + pod, "x2" + pod, "x3" + pod} {
			parts = append(parts, "m "+name+" class=mig-1g.6gb")
		}
	}
	for name, tc := range map[string]struct {
		nodes, claim, from string
		held               []string
		budgets            []*policyv1.PodDisruptionBudget
		change             func(w *fleettest.World, waiting *corev1.Pod)
		want               string
	}{
		"a whole GPU":              {held: halves, want: "n a>n"},
		"two GPUs":                 {held: halves, claim: "count=2", want: "n a>n b>n"},
		"more than all pods leave": {held: halves, claim: "count=3"},
		"nothing has to move":      {held: halves[:3], want: "n"},
		"another node has the room": {nodes: "m=t4 share", held: full, change: func(w *fleettest.World, p *corev1.Pod) {
			stays(w.Pods[0])
			onlyOn("n", p)
		}, want: "n a>m"},
		"the pods of one node only": {nodes: "m=t4 share", from: "m", held: full, change: func(_ *fleettest.World, p *corev1.Pod) { onlyOn("n", p) }},
		"a pod that only its node suits": {nodes: "m=t4 share", held: full, change: func(w *fleettest.World, p *corev1.Pod) {
			stays(w.Pods[0])
			onlyOn("n", p, w.Pods[1])
		}},
		"the cpu of the other node": {nodes: "m=t4 share", held: full, change: func(w *fleettest.World, p *corev1.Pod) {
			stays(w.Pods[0])
			onlyOn("n", p)
			cpu(w, 1, "0", w.Pods[1])
		}},
		"the cpu of a node for several pods": {nodes: "m=t4 share", held: []string{"n all count=2", "n a class=mps.nvidia.com memory=9Gi", "n b class=mps.nvidia.com memory=9Gi"}, claim: "count=2", change: func(w *fleettest.World, p *corev1.Pod) {
			stays(w.Pods[0])
			onlyOn("n", p)
			cpu(w, 1, "1", w.Pods[1:]...)
		}},
		"pods that move for others": {
			nodes: "m=t4 share", held: []string{"n all count=3", "n big class=mps.nvidia.com memory=9Gi", "m most count=2", "m c" + half, "m x" + half, "m d" + half},
			change: func(w *fleettest.World, p *corev1.Pod) {
				stays(w.Pods[0])
				onlyOn("n", p)
			}, want: "n big>m c>m",
		},
		"a budget of none": {held: halves, budgets: []*policyv1.PodDisruptionBudget{budget("a", 0)}, want: "n b>n"},
		"a group moves together": {held: halves, change: func(w *fleettest.World, _ *corev1.Pod) {
			for _, pod := range w.Pods[:2] {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
			}
		}, want: "n c>n"},
		"pods that share a claim": {nodes: "m=t4 share", held: []string{"n a count=4"}, change: func(w *fleettest.World, p *corev1.Pod) {
			onlyOn("n", p)
			share(w, "other", 0)
		}, want: "n a>m other>m"},
		"pods that share a claim and do not fit on a node": {nodes: "m=t4 share", held: []string{"n a count=4"}, change: func(w *fleettest.World, p *corev1.Pod) {
			onlyOn("n", p)
			share(w, "other", 0)
			cpu(w, 1, "1", w.Pods...)
		}},
		"a pod that ends already": {held: append(halves, "n z"+half), claim: "count=2", change: func(w *fleettest.World, _ *corev1.Pod) {
			w.Pods[1].DeletionTimestamp = &metav1.Time{}
		}, want: "n a>n"},
		"a MIG device": {nodes: "m=a30-bridge mig", claim: "class=mig-4g.24gb", held: parts, want: "m a>m"},
		"an NVLink pair": {nodes: "m=a30-bridge share", claim: "count=2 match=nvlinkDomain", held: []string{"m a", "m x1", "m b", "n all count=4"}, change: func(w *fleettest.World, _ *corev1.Pod) {
			stays(w.Pods[2])
		}, want: "m a>m"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []string{"n=t4 share"}
			if tc.nodes != "" {
				nodes = append(nodes, tc.nodes)
			}
			w := fleettest.New(t, nodes...)
			for _, node := range w.Nodes {
				node.Labels = map[string]string{"name": node.Name}
			}
			fragment(w, tc.held...)
			waiting := fleettest.Pod("new")
			if tc.change != nil {
				tc.change(w, waiting)
			}
			moves, err := w.Fleet().NewDefragmentation(tc.from, tc.budgets).Place(t.Context(), 0, waiting, fleettest.Claim("new", tc.claim))
			require.NoError(t, err)
			if got := placesOf(moves); got != tc.want || !moves.Complete {
				t.Errorf("got %q, complete %t, want %q", got, moves.Complete, tc.want)
			}
		})
	}
}

// The devices, pods and budgets of one answer are not there for the next one.
func TestDefragmentForSeveralPods(t *testing.T) {
	w := fleettest.New(t, "n=t4 share")
	fragment(w, "n a"+half, "n x1"+half, "n b"+half, "n x2"+half, "n c"+half, "n x3"+half, "n d"+half)
	for budgets, want := range map[*policyv1.PodDisruptionBudget][]string{nil: {"n a>n", "n c>n", ""}, budget("x", 1): {"n a>n", "", ""}} {
		d := w.Fleet().NewDefragmentation("", slices.DeleteFunc([]*policyv1.PodDisruptionBudget{budgets}, func(b *policyv1.PodDisruptionBudget) bool { return b == nil }))
		for _, pod := range w.Pods {
			pod.Labels = map[string]string{"app": "x"}
		}
		var got []string
		for _, name := range []string{"one", "two", "three"} {
			moves, err := d.Place(t.Context(), 0, fleettest.Pod(name), fleettest.Claim(name, ""))
			require.NoError(t, err)
			got = append(got, placesOf(moves))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
