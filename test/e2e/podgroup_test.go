// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// gang is a PodGroup whose pods share one claim, which is reserved for the group alone.
const gang = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: share}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: mps.nvidia.com, capacity: {requests: {memory: 20Gi}}}
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: share}
`

// ofGang is the line of a pod of the group.
const ofGang = "schedulingGroup: {podGroupName: gang}"

// computing is a pod that computes on a share. It may have a line for a group.
func computing(name, group string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  %s
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: share}
  containers:
  - name: main
    image: localhost/gpu-dra-driver/gpu-probe:demo
    imagePullPolicy: IfNotPresent
    args: [cuda, --memory, 2Gi]
    resources: {claims: [{name: gpu}]}
`, name, group)
}

func TestThePodsOfAPodGroupShareAClaim(t *testing.T) {
	needsKubernetes(t, "1.37", "PodGroups that share claims")
	runOn(t, "gpu-07-00", "dgx-a100", "--offer=share")
	ns := namespaceFor(t, "podgroup")
	t.Cleanup(func() { // a namespace with a group does not become empty
		kubectl(t, "delete", "podgroup", "-n", ns, "--ignore-not-found", "--wait=false", "gang")
	})
	apply(t, ns, gang+computing("one", ofGang)+computing("two", ofGang))
	ready(t, ns, "one", "two")
	claim := groupClaim(t, ns)
	if users := claim.Status.ReservedFor; len(users) != 1 || users[0].Resource != "podgroups" {
		t.Fatalf("the claim is reserved for %+v, want the group alone", users)
	}

	// Its GPU is shared with a pod of no group, while the group computes.
	apply(t, ns, computing("other", ""))
	ready(t, ns, "one", "two", "other")
	claims, err := cluster.Client.ResourceV1().ResourceClaims(ns).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, c := range claims.Items {
		if got := c.Status.Allocation.Devices.Results[0].Device; got != "gpu-07-00" {
			t.Errorf("claim %s has %s, want a share of gpu-07-00", c.Name, got)
		}
	}
	for _, pod := range []string{"one", "two", "other"} {
		if got := held(t, ns, pod); got.AllocatedBytes != 2*gi || got.Error.Name != "" {
			t.Errorf("%s has %d bytes, want 2Gi: %s", pod, got.AllocatedBytes, got.Error.Message)
		}
	}
	who, err := cluster.GPU(t.Context(), "who", "--namespace", ns)
	must(t, err)
	t.Logf("\n%s", who)
	for _, pod := range []string{"one", "two", "other"} {
		if !strings.Contains(who, pod) {
			t.Errorf("kubectl gpu who does not show %s", pod)
		}
	}

	// The claim outlives its pods, and ends with the group.
	remove(t, ns, "one")
	if held(t, ns, "two").Error.Name != "" {
		t.Error("the group's second pod cannot compute after the first one has ended")
	}
	remove(t, ns, "two")
	if groupClaim(t, ns).Status.Allocation == nil {
		t.Error("the claim is released before the group is deleted")
	}
	kubectl(t, "delete", "podgroup", "-n", ns, "gang")
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		claims, err := cluster.Client.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		return len(claims.Items) == 1, fmt.Sprintf("%d claims are left, want the other pod's", len(claims.Items)), nil
	}))
	remove(t, ns, "other")
	nothingLeft(t)
}

// groupClaim returns the claim of the group.
func groupClaim(t *testing.T, namespace string) *resourceapi.ResourceClaim {
	t.Helper()
	claims, err := cluster.Client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var of []*resourceapi.ResourceClaim
	for i := range claims.Items {
		if owners := claims.Items[i].OwnerReferences; len(owners) == 1 && owners[0].Kind == "PodGroup" {
			of = append(of, &claims.Items[i])
		}
	}
	if len(of) != 1 {
		t.Fatalf("the group has %d claims, want 1: %+v", len(of), claims.Items)
	}
	return of[0]
}
