// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func testQuota(t *testing.T) {
	// So that there is something to be had of every class.
	const slice = "gpu-1b-00-ts"
	label(t, "gpu.nvidia.com/offer=share.mig.timeslice.monitor")
	published(t, slice, true)
	t.Cleanup(func() {
		label(t, "gpu.nvidia.com/offer=share.monitor")
		published(t, slice, false)
	})
	cleared(t, "validatingadmissionpolicybinding/gpu-quotas", "validatingadmissionpolicy/gpu-quotas", "deviceclass/shares.example.com")
	ns, others := namespaceFor(t, "research"), namespaceFor(t, "others")
	apply(t, "", "demo/tenancy/quota.yaml")
	ready(t, ns, "by-claim", "by-limit", "by-share")
	for line, want := range map[corev1.ResourceName]int64{
		"requests.nvidia.com/gpu":                                    2,
		"requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com": 2,
		"gpu.nvidia.com.deviceclass.resource.k8s.io/devices":         2,
		"shares.example.com.deviceclass.resource.k8s.io/devices":     1,
	} {
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			quota, err := cluster.Client.CoreV1().ResourceQuotas(ns).Get(ctx, "gpus", metav1.GetOptions{})
			if err != nil {
				return false, "", err
			}
			used, counted := quota.Status.Used[line]
			return counted && used.Value() == want, fmt.Sprintf("%s: %s are counted, want %d", line, used.String(), want), nil
		}))
	}
	const without = "has no line mps.nvidia.com.deviceclass.resource.k8s.io/devices, and what it does not name cannot be had"
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		message := try(t, ns, of("mps.nvidia.com", claim("share", "capacity: {requests: {memory: 10Gi}}", "")))
		return strings.Contains(message, without), "the policy is not in force: " + message, nil
	}))
	t.Run("no claim gets a third GPU", func(t *testing.T) { testQuotaOfClaims(t, ns, others) })
	t.Run("no pod gets a third GPU", func(t *testing.T) { testQuotaOfPods(t, ns) })

	// A GPU that one pod releases is free for another.
	remove(t, ns, "by-limit")
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		message := try(t, ns, claim("third", "", ""))
		return message == "", message, nil
	}))
	remove(t, ns, "by-claim", "by-share")
}

// testQuotaOfClaims claims a device of every class five times. Before that, other
// claims have used up the GPUs of the quota.
func testQuotaOfClaims(t *testing.T, ns, others string) {
	before := claimsIn(t, ns)
	var all strings.Builder
	classes := classNames(t)
	for _, class := range classes {
		for i := range 5 {
			all.WriteString(of(class, claim(fmt.Sprintf("%s-%d", class, i), "", "")))
		}
	}
	out, err := cluster.KubectlInput(t.Context(), all.String(), "create", "-n", ns, "-f", "-")
	if got := strings.Count(out, "Error from server"); err == nil || got != 5*len(classes) {
		t.Errorf("%d of %d claims are refused: %s", got, 5*len(classes), out)
	}
	require.Same(t, "claims", before, claimsIn(t, ns))

	refused(t, ns, claim("third", "", ""), "exceeded quota: gpus", "gpu.nvidia.com.deviceclass")
	refused(t, ns, claim("all", "allocationMode: All", ""), "exceeded quota: gpus")
	const without = "the quota gpus of this namespace has no line mps.nvidia.com.deviceclass.resource.k8s.io/devices"
	another := of("mps.nvidia.com", claim("another", "capacity: {requests: {memory: 10Gi}}", ""))
	refused(t, ns, another, without)
	refused(t, ns, template(another), without)
	refused(t, ns, strings.ReplaceAll(another, "exactly:", "firstAvailable:\n      - name: a"), without)
	if message := try(t, others, another); message != "" {
		t.Errorf("refused in a namespace without a quota: %s", message)
	}

	// Of shares there are four, of which one is taken.
	refused(t, ns, of("shares.example.com", claim("whole", "", "")), "memory")
	refused(t, ns, of("shares.example.com", claim("large", "capacity: {requests: {memory: 11Gi}}", "")), "10Gi")
	all.Reset()
	for i := range 5 {
		all.WriteString(of("shares.example.com", claim(fmt.Sprintf("share-%d", i), "capacity: {requests: {memory: 10Gi}}", "")))
	}
	if out, err = cluster.KubectlInput(t.Context(), all.String(), "create", "-n", ns, "-f", "-"); err == nil {
		t.Errorf("five more shares are admitted: %s", out)
	}
	require.Same(t, "claims", append(slices.Clone(before), "share-0", "share-1", "share-2"), claimsIn(t, ns))
	kubectl(t, "delete", "resourceclaim", "-n", ns, "share-0", "share-1", "share-2")
}

// testQuotaOfPods requests a device of some classes as extended resources, by each of
// their names. A pod that is not refused at once stays Pending, because its claim is
// refused.
func testQuotaOfPods(t *testing.T, ns string) {
	before := claimsIn(t, ns)
	refused(t, ns, pod("third", "", "nvidia.com/gpu: 1"), "exceeded quota: gpus", "requests.nvidia.com/gpu")
	refused(t, ns, pod("third", "", "deviceclass.resource.kubernetes.io/gpu.nvidia.com: 1"), "exceeded quota: gpus", "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com")
	var waiting []string
	for name, resource := range map[string]string{
		"shares-by-class": "deviceclass.resource.kubernetes.io/shares.example.com",
		"mps-by-class":    "deviceclass.resource.kubernetes.io/mps.nvidia.com",
		"mig-by-class":    "deviceclass.resource.kubernetes.io/mig.nvidia.com",
		"mig-by-name":     "nvidia.com/mig-1g.10gb",
		"turns-by-class":  "deviceclass.resource.kubernetes.io/timeslice.nvidia.com",
		"turns-by-name":   "nvidia.com/gpu.shared",
	} {
		apply(t, ns, pod(name, "", resource+": 1"))
		waiting = append(waiting, name)
	}
	for _, name := range waiting {
		_, err := cluster.WaitEvent(t.Context(), ns, name, "denied request")
		must(t, err)
	}
	require.Same(t, "claims", before, claimsIn(t, ns))
	remove(t, ns, waiting...)
}

// claimsIn a namespace, by name.
func claimsIn(t *testing.T, ns string) []string {
	t.Helper()
	list, err := cluster.Client.ResourceV1().ResourceClaims(ns).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// classNames of the cluster, of which the chart makes many.
func classNames(t *testing.T) []string {
	t.Helper()
	list, err := cluster.Client.ResourceV1().DeviceClasses().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	for _, known := range []string{"gpu.nvidia.com", "mps.nvidia.com", "mig.nvidia.com", "mig-1g.10gb", "timeslice.nvidia.com", "monitor.nvidia.com", "shares.example.com"} {
		if !slices.Contains(names, known) {
			t.Fatalf("no class %s among %v", known, names)
		}
	}
	return names
}
