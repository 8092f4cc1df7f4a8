// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// applied returns a function that applies a manifest.
func applied(manifest string) func(*testing.T, string) {
	return func(t *testing.T, ns string) { apply(t, ns, manifest) }
}

// isReady waits for the pod "train".
func isReady(t *testing.T, ns string) { ready(t, ns, "train") }

// again replaces the pod "train" and its claims by others.
func again(manifest string) func(*testing.T, string) {
	return func(t *testing.T, ns string) {
		must(t, cluster.EmptyNamespace(t.Context(), ns))
		apply(t, ns, manifest)
	}
}

func faultsOfPods() []fault {
	const train = "explain train --namespace NS"
	trains := pod("train", "train", "")
	computes := strings.Replace(trains, "imagePullPolicy: IfNotPresent",
		"imagePullPolicy: IfNotPresent\n    terminationMessagePolicy: FallbackToLogsOnError\n    args: [cuda, --once, --memory, 20Gi]", 1)
	unnamed := strings.Replace(trains, "\n      claims:\n      - name: gpu", " {}", 1)
	whole := func(t *testing.T, ns string) {
		again(claim("train", "", "")+trains)(t, ns)
		isReady(t, ns)
	}
	return []fault{
		{
			name: "a misspelt DeviceClass", command: train, make: applied(of("gpu.nvidia.con", claim("train", "", "")) + trains),
			words: []string{"the DeviceClass gpu.nvidia.con does not exist: did you mean gpu.nvidia.com"}, mend: whole,
		},
		{
			name: "a misspelt extended resource", command: train, make: applied(pod("train", "", "nvidia.com/gpuu: 1")),
			words: []string{"container main requests nvidia.com/gpuu, which nothing in this cluster serves", "did you mean nvidia.com/gpu"},
			mend: func(t *testing.T, ns string) {
				again(pod("train", "", "nvidia.com/gpu: 1"))(t, ns)
				isReady(t, ns)
			},
		},
		{
			name: "a resource of another vendor", command: train, make: applied(pod("train", "", "{nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}")),
			words: []string{"container main requests nvidia.com/gpumem, which nothing in this cluster serves", "or write a claim: https://"}, mend: whole,
		},
		{
			name: "a claim in another namespace", command: train,
			make: func(t *testing.T, ns string) {
				other := namespaceFor(t, "faults-other")
				apply(t, other, claim("train", "", ""))
				apply(t, ns, trains)
			},
			words: []string{"claim train is in the namespace faults-other"},
			mend: func(t *testing.T, ns string) {
				apply(t, ns, claim("train", "", ""))
				isReady(t, ns)
			},
		},
		{
			name: "a MIG profile that the node does not offer", command: train,
			make: func(t *testing.T, ns string) {
				t.Cleanup(func() { label(t, "gpu.nvidia.com/offer-") })
				label(t, "gpu.nvidia.com/offer=share.monitor")
				apply(t, ns, pod("train", "", "nvidia.com/mig-1g.10gb: 1"))
			},
			words: []string{"it has no device of the class", "an administrator adds mig to the offer of node NODE"},
			mend: func(t *testing.T, ns string) {
				label(t, "gpu.nvidia.com/offer=share.monitor.mig")
				isReady(t, ns)
			},
		},
		{
			name: "a quota that is exceeded", command: train,
			make: func(t *testing.T, ns string) {
				t.Cleanup(func() { kubectl(t, "delete", "--ignore-not-found", "resourcequota", "gpus", "--namespace", ns) })
				kubectl(t, "create", "quota", "gpus", "--namespace", ns, "--hard=gpu.nvidia.com.deviceclass.resource.k8s.io/devices=0")
				apply(t, ns, templated("train", claim("train", "", "")))
			},
			// The event stays among the facts, with its end.
			words: []string{"have an administrator raise the quota", "exceeded quota: gpus"},
			mend: func(t *testing.T, ns string) {
				kubectl(t, "patch", "resourcequota", "gpus", "--namespace", ns, "--type=merge", "--patch", `{"spec": {"hard": {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "1"}}}`)
				isReady(t, ns)
			},
		},
		{
			name: "a share that is too large", command: train, make: applied(share("train", "200Gi", "") + trains),
			words: []string{"no device is large enough", "it has 80928Mi of memory, less than 200Gi", "request less"},
			mend: func(t *testing.T, ns string) {
				again(share("train", "80928Mi", "")+trains)(t, ns)
				isReady(t, ns)
			},
		},
		{
			name: "GPUs that are all taken", command: train,
			make: func(t *testing.T, ns string) {
				apply(t, ns, claim("all", "count: 8", "")+pod("all", "all", ""))
				ready(t, ns, "all")
				apply(t, ns, claim("train", "", "")+trains)
			},
			words: []string{"other claims hold the devices", "held by claim NS/all of pod all", "wait until enough of these claims end"},
			mend: func(t *testing.T, ns string) {
				kubectl(t, "delete", "pod", "all", "--namespace", ns)
				isReady(t, ns)
			},
		},
		{
			name: "a claim that no container names", command: "doctor", code: "claim-not-named", make: applied(claim("train", "", "") + unnamed),
			words: []string{"pod NS/train", "no container names its claim gpu", "add resources: {claims: [{name: gpu}]}"},
			mend:  again(claim("train", "", "") + trains),
		},
		{
			name: "two shares in a container", command: "doctor", code: "two-shares-in-container",
			make: applied(share("train", "10Gi", "") + share("more", "10Gi", "") + strings.NewReplacer(
				"resourceClaimName: train", "resourceClaimName: train\n  - name: more\n    resourceClaimName: more",
				"      - name: gpu", "      - name: gpu\n      - name: more").Replace(trains)),
			words: []string{"pod NS/train", "its container main names 2 shares", "name one share in each container"},
			mend: func(t *testing.T, ns string) {
				again(share("train", "20Gi", "")+trains)(t, ns)
				isReady(t, ns) // doctor examines allocated claims
			},
		},
		{
			name: "a program that needs more memory than its share", command: train, make: applied(share("train", "10Gi", "") + computes),
			words: []string{"CUDA_ERROR_OUT_OF_MEMORY", "the memory of the GPU within the limits was used up: have the program use less, or claim more memory"},
			mend: func(t *testing.T, ns string) {
				again(share("train", "40Gi", "")+computes)(t, ns)
				must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
					pod, err := cluster.Client.CoreV1().Pods(ns).Get(ctx, "train", metav1.GetOptions{})
					if err != nil {
						return false, "", err
					}
					return pod.Status.Phase == corev1.PodSucceeded, "the pod is " + string(pod.Status.Phase), nil
				}))
			},
		},
		{
			name: "a refused configuration", command: train, status: 2,
			make: func(t *testing.T, ns string) {
				withoutPolicies(t)
				apply(t, ns, claim("train", "", config("GpuConfig", `"sharring": {}`))+trains)
			},
			words: []string{"sharring", "pod NS/train: ContainerCreating", "waiting does not help: change the claim or its configuration as the cause says, and create the pod again"},
			facts: []string{"agent of node NODE: pod "}, hidden: []string{"NodePrepareResources", "Failed to prepare dynamic resources"},
			mend: func(t *testing.T, ns string) {
				again(claim("train", "", "")+trains)(t, ns)
				isReady(t, ns)
			},
		},
		{
			name: "the name of a pod of another namespace", command: "explain train --namespace default",
			make: func(t *testing.T, ns string) {
				apply(t, ns, claim("train", "", "")+trains)
				isReady(t, ns)
			},
			words: []string{"it is in another namespace"}, remedies: []string{"kubectl gpu explain train --namespace NS"}, stays: true,
		},
	}
}
