// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

func TestExplainFindsTheNameThatIsMeant(t *testing.T) {
	w := shared(t)
	other := fleettest.Pod("train")
	other.Namespace = "research"
	w.Pods = append(w.Pods, other)
	w.Claims[0].Name = "big"
	for name, want := range map[string]string{
		"train":       "it is in another namespace: kubectl gpu explain train --namespace research",
		"pod/train":   "it is in another namespace: kubectl gpu explain train --namespace research",
		"whol":        "did you mean whole? kubectl gpu explain whole --namespace default",
		"claim/half-": "did you mean half? kubectl gpu explain claim/half --namespace default",
		"zzzzzzz":     "no pod and no claim of the namespace default has this name",
	} {
		if out, status := explain(t, server(w), name); status != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: status %d: %s, want %s", name, status, out, want)
		}
	}
	// Nothing of namespaces that the user may not list is printed.
	client := server(w)
	forbid(client, "pods", true)
	if out, _ := explain(t, client, "train"); strings.Contains(out, "research") {
		t.Errorf("got %s", out)
	}
}

// requesting returns a pod with limits for extended resources.
func requesting(limits map[string]string) *corev1.Pod {
	pod := fleettest.Pod("new")
	pod.Spec.ResourceClaims = nil
	all := corev1.ResourceList{}
	for name, amount := range limits {
		all[corev1.ResourceName(name)] = k8sresource.MustParse(amount)
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: all}}}
	return pod
}

func TestExplainOfResourcesOfOtherVendors(t *testing.T) {
	const claim = "request a resource that a DeviceClass serves, or write a claim: https://"
	for name, tc := range map[string]struct{ resource, want string }{
		"of another project":            {"nvidia.com/gpumem", claim},
		"misspelt":                      {"nvidia.com/gpus", "did you mean nvidia.com/gpu? Resources of a pod cannot be changed: create it again"},
		"a MIG profile without a class": {"nvidia.com/mig-5g.40gb", claim},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share")
			w.Pods = append(w.Pods, requesting(map[string]string{tc.resource: "1"}))
			out, status := explain(t, server(w), "new")
			if contains(t, out, "container main requests "+tc.resource+", which nothing in this cluster serves", tc.want); status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
	// Resources of others are none of the driver's.
	w := fleettest.New(t, "a=t4 share")
	w.Pods = append(w.Pods, requesting(map[string]string{"example.com/fpga": "1", "cpu": "1"}))
	if out, _ := explain(t, server(w), "new"); strings.Contains(out, "serves") {
		t.Errorf("got %s", out)
	}
}

func TestExplainOfDevicesThatTheNodeCouldOffer(t *testing.T) {
	const profile = "device.attributes['gpu.nvidia.com'].profile=='4g.40gb'"
	offers := func(word string) string {
		return "an administrator adds " + word + " to the offer of node a: https://"
	}
	for name, tc := range map[string]struct{ node, claim, want string }{
		"no MIG":            {"dgx-h100 share", "class=mig-1g.10gb", offers("mig")},
		"a monitor":         {"dgx-h100 share.mig", "class=monitor.nvidia.com", offers("monitor")},
		"no shares":         {"dgx-h100 mig", "class=mps.nvidia.com memory=1Gi", offers("share")},
		"no time slices":    {"t4 share", "class=timeslice.nvidia.com", offers("timeslice")},
		"another profile":   {"dgx-h100 share.mig", "class=mig.nvidia.com cel=" + profile, "if the GPUs of node a have the MIG profile, an administrator adds it: https://"},
		"a GPU without MIG": {"t4 share", "class=mig-1g.10gb", "name another class"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a="+tc.node)
			w.Claims = append(w.Claims, fleettest.Claim("new", tc.claim))
			out, status := explain(t, server(w), "claim/new")
			if contains(t, out, tc.want); status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
}

func TestExplainOfAClassThatDoesNotExist(t *testing.T) {
	w := shared(t)
	w.Claims = append(w.Claims, fleettest.Claim("misspelt", "class=mps.nvidia.con memory=1Gi"), fleettest.Claim("off", "class=seat.nvidia.com"), fleettest.Claim("unknown", "class=xyz"))
	w.Classes = slices.DeleteFunc(w.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == "seat.nvidia.com" })
	for claim, want := range map[string]string{
		"claim/misspelt": "the DeviceClass mps.nvidia.con does not exist: did you mean mps.nvidia.com",
		"claim/unknown":  "the DeviceClass xyz does not exist: name another: kubectl get deviceclasses",
		"claim/off":      "the DeviceClass seat.nvidia.com does not exist: an administrator switches it on in the chart, below deviceClasses: https://",
	} {
		out, status := explain(t, server(w), claim)
		if contains(t, out, want); status != 2 {
			t.Errorf("status %d", status)
		}
	}
}

// No change of a claim helps if nothing is published.
func TestExplainWithoutDevices(t *testing.T) {
	w := shared(t)
	w.Slices, w.Claims, w.Pods = nil, []*resourceapi.ResourceClaim{fleettest.Claim("new", "")}, nil
	out, status := explain(t, server(w), "claim/new")
	if contains(t, out, "no node publishes devices", "kubectl gpu doctor"); status != 2 || strings.Contains(out, "request fewer") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestExplainNamesTheTolerationForANode(t *testing.T) {
	w := waiting(t)
	for _, node := range w.Nodes {
		node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	}
	out, _ := explain(t, server(w), "pending")
	contains(t, out, "no node admits the pod", `tolerations: [{key: "team", operator: Equal, value: "a", effect: NoSchedule}]`)
	for _, node := range w.Nodes {
		node.Spec.Taints[0].Key = corev1.TaintNodeUnreachable
	}
	out, _ = explain(t, server(w), "pending")
	if contains(t, out, "find why node a has the taint node.kubernetes.io/unreachable: kubectl describe node a"); strings.Contains(out, "tolerations:") {
		t.Errorf("advice to tolerate a node in trouble:\n%s", out)
	}
}

// A pod that waits for a GPU with a fault waits for its repair.
func TestExplainOfAPodThatWaitsForASickGPU(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	for i := range w.Slices[0].Spec.Devices {
		taint(w, w.Slices[0].Spec.Devices[i].Name, resourceapi.DeviceTaint{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79"})
	}
	w.Pods, w.Claims = append(w.Pods, fleettest.Pod("new")), append(w.Claims, fleettest.Claim("new", ""))
	out, status := explain(t, server(w), "new")
	contains(t, out, "nearest to fit is node a: devices have taints",
		"gpu-18-00, gpu-3b-00, gpu-86-00, gpu-af-00 of node a: the GPU has fallen off the bus (xid-79, for 12m)",
		"goes when the GPU was lost and answers again, or the node restarts")
	if status != 2 || strings.Contains(out, "tolerate") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestExplainOfAClaimThatTheNamespaceLacks(t *testing.T) {
	for name, tc := range map[string]struct{ named, want string }{
		"in another namespace": {"theirs", "a claim theirs is in the namespace research, and pods use claims of their own namespace only"},
		"misspelt":             {"whol", "did you mean the claim whole? The claims of a pod cannot be changed: create it again"},
		"unknown":              {"zzzzzzz", "create the claim zzzzzzz in the namespace default"},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			theirs := fleettest.Claim("theirs", "")
			theirs.Namespace = "research"
			w.Claims = append(w.Claims, theirs)
			pod := fleettest.Pod("new")
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &tc.named}}
			w.Pods = append(w.Pods, pod)
			out, status := explain(t, server(w), "new")
			if contains(t, out, "claim "+tc.named+" of the pod does not exist", tc.want); status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
}
