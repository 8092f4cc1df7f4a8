// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet/fleettest"
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
	for name, tc := range map[string]struct {
		limits map[string]string
		want   []string
	}{
		"HAMi": {map[string]string{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}, []string{
			"container main requests nvidia.com/gpumem, which nothing in this cluster serves",
			"deviceClassName: mps.nvidia.com, capacity: {requests: {memory: 3000Mi, compute: 30}}}}]}}}}' | kubectl apply --namespace default --filename -",
			"create the pod again without nvidia.com/gpu, nvidia.com/gpucores, nvidia.com/gpumem: spec.resourceClaims: [{name: gpu, resourceClaimTemplateName: new-gpu}], and in container main resources.claims: [{name: gpu}]",
		}},
		"HAMi, percent": {map[string]string{"nvidia.com/gpumem-percentage": "50"}, []string{"capacity: {requests: {memory: 7457Mi}}"}},
		"a misspelt resource": {map[string]string{"nvidia.com/gpus": "1"}, []string{
			"did you mean nvidia.com/gpu", "kubectl get pod new --namespace default --output yaml | sed 's|nvidia.com/gpus|nvidia.com/gpu|' | kubectl replace --force --filename -",
		}},
		"a MIG profile without a class": {map[string]string{"nvidia.com/mig-5g.40gb": "1"}, []string{`deviceClassName: mig.nvidia.com, selectors: [{cel: {expression: "device.attributes[\"gpu.nvidia.com\"].profile == \"5g.40gb\""}}]`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share")
			w.Pods = append(w.Pods, requesting(tc.limits))
			out, status := explain(t, server(w), "new")
			if contains(t, out, tc.want...); status != 2 {
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
	for name, tc := range map[string]struct {
		node, resource, want string
	}{
		"no MIG":            {"a=dgx-h100 share", "nvidia.com/mig-1g.10gb", "kubectl label node a gpu.nvidia.com/offer=share.mig --overwrite"},
		"another profile":   {"a=dgx-h100 share.mig", "nvidia.com/mig-4g.40gb", "node a offers MIG devices, and not the profile 4g.40gb, which its gpu-1b-00 NVIDIA H100 80GB HBM3 has"},
		"no time slices":    {"a=t4 share", "nvidia.com/gpu.shared", "kubectl label node a gpu.nvidia.com/offer=share.timeslice --overwrite"},
		"a GPU without MIG": {"a=t4 share", "nvidia.com/mig-1g.10gb", "name another class"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, tc.node)
			w.Pods = append(w.Pods, requesting(map[string]string{tc.resource: "1"}))
			out, status := explain(t, server(w), "new")
			if contains(t, out, tc.want); status != 2 {
				t.Errorf("status %d", status)
			}
			if name == "another profile" {
				contains(t, out, "--set 'mig.profiles={1g.10gb,2g.20gb,3g.40gb,4g.40gb,7g.80gb}'")
			}
		})
	}
}

func TestExplainOfAMisspeltClass(t *testing.T) {
	w := shared(t)
	w.Claims = append(w.Claims, fleettest.Claim("new", "class=mps.nvidia.con memory=1Gi"))
	out, status := explain(t, server(w), "claim/new")
	contains(t, out, "did you mean the DeviceClass mps.nvidia.com",
		"kubectl get resourceclaim new --namespace default --output yaml | sed 's|deviceClassName: mps.nvidia.con$|deviceClassName: mps.nvidia.com|' | kubectl replace --force --filename -")
	if status != 2 {
		t.Errorf("status %d", status)
	}
	pod := fleettest.Pod("new")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("small")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("new")}}
	w.Pods = append(w.Pods, pod)
	w.Claims[2].OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	out, _ = explain(t, server(w), "new")
	contains(t, out, "kubectl get resourceclaimtemplate small --namespace default --output yaml", "then kubectl delete pod new --namespace default")
}

// A pod that waits for a GPU with a fault waits for its repair.
func TestExplainOfAPodThatWaitsForASickGPU(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	for i := range w.Slices[0].Spec.Devices {
		taint(t, w, w.Slices[0].Spec.Devices[i].Name, resourceapi.DeviceTaint{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79"})
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
	for name, tc := range map[string]struct {
		named string
		want  []string
	}{
		"in another namespace": {"theirs", []string{
			"claim theirs of the pod does not exist", "the claim theirs is in the namespace research, and pods use claims of their own namespace only",
			"kubectl get resourceclaim theirs --namespace research --output yaml | sed ", "s|^  namespace: .*|  namespace: default|' | kubectl create --filename -",
		}},
		"misspelt": {"whol", []string{"did you mean the claim whole? kubectl get pod new --namespace default --output yaml | sed 's|resourceClaimName: whol$|resourceClaimName: whole|' | kubectl replace --force --filename -"}},
		"unknown":  {"zzzzzzz", []string{"create the claim, or name one of the namespace: kubectl get resourceclaims --namespace default"}},
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
			if contains(t, out, tc.want...); status != 2 {
				t.Errorf("status %d", status)
			}
		})
	}
}
