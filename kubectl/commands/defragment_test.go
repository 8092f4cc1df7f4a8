// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// halves returns a cluster with a node, on which two GPUs have a half in use and two are full, and pods that wait.
func halves(t *testing.T, waiting ...string) *fleettest.World {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "full", "count=2")
	for _, name := range []string{"one", "gone", "two"} {
		w.Hold("a", name, "class=mps.nvidia.com memory=7Gi")
	}
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Spec.Priority = "a", ptr.To(int32(50))
		w.Claims[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: pod.Name, Controller: ptr.To(true)}}
	}
	controlled("ReplicaSet", w.Pods...)
	w.Pods, w.Claims = append(w.Pods[:2], w.Pods[3]), append(w.Claims[:2], w.Claims[3])
	for i, name := range waiting {
		pod := fleettest.Pod(name)
		pod.CreationTimestamp = metav1.Time{Time: time.Date(2000, 1, 1, 0, 0, i, 0, time.UTC)}
		w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, fleettest.Claim(name, ""))
	}
	return w
}

func TestDefragmentNamesMovesAndTheirPlaces(t *testing.T) {
	const move = "default/one from node a gpu-86-00 to node a gpu-af-00; "
	for name, tc := range map[string]struct {
		change func(w *fleettest.World)
		args   string
		want   string
	}{
		"the pods that wait, in order": {func(w *fleettest.World) { w.Pods[5].Spec.Priority = ptr.To(int32(9)) }, "", `
pod default/third would run on node a with gpu-86-00 after 1 move
` + move + `ReplicaSet web creates it again
pod default/first and 1 pod like it: no pods can move so that it fits
1 pod restarts`},
		"a pod that no controller creates again": {func(w *fleettest.World) { w.Pods[1].OwnerReferences, w.Pods = nil, w.Pods[:4] }, "a", `
pod default/first would run on node a with gpu-86-00 after 1 move
` + move + `no controller creates it again
1 pod restarts
no controller creates again: default/one`},
		"nothing helps": {func(w *fleettest.World) { w.Claims[3], w.Pods = fleettest.Claim("first", "count=4"), w.Pods[:4] }, "", `
pod default/first: no pods can move so that it fits
no pod can be helped by moving others`},
		"nothing has to move": {func(w *fleettest.World) {
			w.Claims[3], w.Pods = fleettest.Claim("first", "class=mps.nvidia.com memory=7Gi"), w.Pods[:4]
		}, "", `
pod default/first fits on node a: no pod has to move
no pod has to move`},
		"no pod waits": {func(w *fleettest.World) {
			w.Pods = w.Pods[:4]
			w.Pods[3].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
		}, "", "no pod waits for devices"},
		"a group, and a pod that ends": {func(w *fleettest.World) {
			w.Pods = w.Pods[:4]
			w.Pods[1].DeletionTimestamp, w.Pods[1].Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"}
			w.Pods[3].Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
		}, "", `
no pod can be helped by moving others
end already, and count as ended: default/one
1 waiting pod was not examined: the first 10 are, and none of a group or without its claims`},
		"another node": {nil, "b", "Error: node b: not found: did you mean a?"},
		"--evict":      {nil, "--evict", "Error: --evict: invalid: --defragment changes nothing, and is for all pods that wait; the scheduler itself places the pods that you evict"},
	} {
		t.Run(name, func(t *testing.T) {
			w := halves(t, "first", "second", "third")
			if tc.change != nil {
				tc.change(w)
			}
			client := server(w)
			synctest.Test(t, func(t *testing.T) {
				out, problems := run(t, client, append([]string{"room", "--defragment"}, strings.Fields(tc.args)...)...)
				lines(t, strings.ReplaceAll(out, "\n\n", "\n")+problems, tc.want)
				if all := writes(client); len(all) > 0 {
					t.Errorf("it has changed something: %v", all)
				}
			})
		})
	}
}

func TestDefragmentInJSON(t *testing.T) {
	const fields = "{.kind} {.restarts} {.items[*].outcome} {.items[0].devices} {.items[0].moves[*].pod} {.items[0].moves[*].toNode} {.items[0].moves[*].toDevices} {.items[1].alike}"
	out, problems := run(t, server(halves(t, "first", "second", "third")), "room", "--defragment", "--output", "jsonpath="+fields)
	lines(t, out+problems, `MoveList 1 found none ["gpu-86-00"] one a ["gpu-af-00"] 1`)
}
