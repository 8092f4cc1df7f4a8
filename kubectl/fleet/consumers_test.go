// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

func TestThePodsOfAPodGroupHoldItsClaim(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.HoldForGroup("a", "gang", "memory=5Gi", "gang-0", "gang-1")
	for name, change := range map[string]func(){
		"another-group":     func() { *w.Pods[len(w.Pods)-1].Spec.SchedulingGroup.PodGroupName = "other" },
		"another-namespace": func() { w.Pods[len(w.Pods)-1].Namespace = "other" },
		"another-claim":     func() { *w.Pods[len(w.Pods)-1].Spec.ResourceClaims[0].ResourceClaimName = "other" },
		"no-group":          func() { w.Pods[len(w.Pods)-1].Spec.SchedulingGroup = nil },
	} {
		w.Pods = append(w.Pods, fleettest.PodOf("gang", name, "gang"))
		change()
	}
	if diff := cmp.Diff("gang-0 gang-1", holderPods(w.Fleet())); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gang"}, fleet.PodGroups(w.Claims[0])); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	// The pods of a claim that is reserved for the pods themselves.
	w.Claims[0].Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "gang-1", UID: "pod-gang-1"}}
	if got := holderPods(w.Fleet()); got != "gang-1" {
		t.Errorf("pods %q, want the reserved one only", got)
	}
}

func holderPods(f *fleet.Fleet) string {
	var names []string
	for _, node := range f.Nodes() {
		for _, g := range node.GPUs {
			for _, h := range g.Holders() {
				for _, pod := range h.Pods {
					names = append(names, pod.Name)
				}
			}
		}
	}
	return strings.Join(names, " ")
}
