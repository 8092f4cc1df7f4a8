// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// waiting returns a cluster with a pod that waits for a GPU: all four are in use.
func waiting(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	w.Hold("a", "held", "count=4")
	w.Hold("b", "held-too", "count=4")
	pod := fleettest.Pod("pending")
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}}}
	w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, fleettest.Claim("pending", ""))
	return w
}

func TestExplainNamesUnexaminedNodes(t *testing.T) {
	out, problems := run(t, server(waiting(t)), "explain", "pending", "-n", "default", "--limit", "1ns")
	lines(t, out+problems, `
pod default/pending: Pending
not all nodes and devices were examined, so causes and advice may be wrong: search for longer (kubectl gpu explain --limit), or write simpler selectors

Facts
scheduler: no node

Not examined (--limit): a, b`)
	client := server(waiting(t))
	if out, status := explain(t, client, "claim/pending", "--limit", "1ns"); status != 5 {
		t.Errorf("a claim: status %d:\n%s", status, out)
	}
	forbid(client, "resourceslices", false)
	if out, status := explain(t, client, "claim/pending"); status != 5 {
		t.Errorf("a claim without the right to list slices: status %d:\n%s", status, out)
	}
	if out, _ := run(t, server(waiting(t)), "explain", "pending", "-n", "default", "--limit", "1ns", "-o", "json"); !strings.Contains(out, `"notExaminedNodes": [`) {
		t.Errorf("got %s", out)
	}
}

// The selectors are not evaluated for the names that they read either.
func TestAnExplanationWithoutTimeEvaluatesNoSelectors(t *testing.T) {
	w := waiting(t)
	w.Claims[2].Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.attributes['gpu.nvidia.com'].colour == 'red'"}}}
	w.Pods[2].Spec.NodeSelector = map[string]string{"zone": "none"}
	const read = "it reads the attribute gpu.nvidia.com/colour"
	if out, problems := run(t, server(w), "explain", "pending", "-n", "default"); !strings.Contains(out, read) || strings.Contains(out, "not all nodes") {
		t.Errorf("got %s%s, want that the selector reads a name that no device has", out, problems)
	}
	if out, problems := run(t, server(w), "explain", "pending", "-n", "default", "--limit", "1ns"); strings.Contains(out, read) || !strings.Contains(out, "not all nodes and devices were examined") {
		t.Errorf("got %s%s, want that the explanation is not complete", out, problems)
	}
}

func TestExplainOfAPoolThatTheSchedulerRefuses(t *testing.T) {
	w := waiting(t)
	w.Slices[0].Spec.Devices = append(w.Slices[0].Spec.Devices, w.Slices[0].Spec.Devices[0])
	w.Claims = w.Claims[2:]
	w.Slices, w.Nodes = w.Slices[:1], w.Nodes[:1]
	client := server(w)
	out, problems := run(t, client, "explain", "pending", "-n", "default")
	for _, want := range []string{
		"Node a: pool a of gpu.nvidia.com: the scheduler refuses the pool: it has the device gpu-18-00 twice",
		"gpu-18-00, gpu-3b-00, gpu-86-00, gpu-af-00: pool a of gpu.nvidia.com: the scheduler refuses the pool",
		"have the driver that the reason names publish its devices again",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s%s, want %s", out, problems, want)
		}
	}
}

// An explanation has a limited length, also if thousands of devices miss the claim.
func TestExplainOfManyDevices(t *testing.T) {
	w := waiting(t)
	const most = 256
	slice := w.Slices[0].DeepCopy()
	for i := range 1000 {
		device := slice.Spec.Devices[0].DeepCopy()
		device.Name = fmt.Sprintf("gpu-%d", i)
		w.Slices[0].Spec.Devices = append(w.Slices[0].Spec.Devices, *device)
	}
	w.Claims[2].Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.driver == 'none'"}}}
	out, _ := run(t, server(w), "explain", "pending", "-n", "default")
	if n := strings.Count(out, "the selector "); n > 2*most+2 || !strings.Contains(out, fmt.Sprintf("%d further devices do not meet it either", 1004-most)) {
		t.Errorf("%d reasons: %.3000s", n, out)
	}
}
