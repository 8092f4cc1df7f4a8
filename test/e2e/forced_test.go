// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A container that loads data computes nothing at the moment: NVML lists no process of it.
// Its device nodes stay open to it, so its GPU must not go to the next tenant.
func TestAnIdleContainerKeepsItsDeviceAfterAForcedDeletion(t *testing.T) {
	t.Run("a GPU", func(t *testing.T) {
		testForcedIdle(t, "forced-idle", "gpu.nvidia.com", "")
	})
	t.Run("a MIG device", func(t *testing.T) {
		runOn(t, "gpu-1b-00-mig-1g-10gb-0", "dgx-h100", "--offer=share,mig")
		testForcedIdle(t, "forced-idle-mig", "mig.nvidia.com", `selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}]`)
	})
}

func testForcedIdle(t *testing.T, name, class, selectors string) {
	const tolerations = "\ntolerations: [{key: gpu.nvidia.com/in-use, operator: Exists}]"
	user := func(request string) string { return templated("user", of(class, claim("user", request, ""))) }
	nothingLeft(t)
	ns, next, other := namespaceFor(t, name), namespaceFor(t, name+"-next"), namespaceFor(t, name+"-other")
	apply(t, ns, user(selectors))
	ready(t, ns, "user")
	device := report(t, ns)["user/main"].Device
	pod, err := cluster.Client.CoreV1().Pods(ns).Get(t.Context(), "user", metav1.GetOptions{})
	must(t, err)
	stuck, err := harness.NewStuck(t.Context(), pod.UID)
	must(t, err)
	t.Cleanup(func() { must(t, stuck.End()) })

	forget(t, ns, "user")
	waitInUse(t, device, true)

	// A pod that does not tolerate the taint gets another device at once.
	apply(t, other, user(selectors))
	ready(t, other, "user")
	if got := report(t, other)["user/main"].Device; got == device {
		t.Errorf("the next pod has %s, in which a process of another tenant lives", got)
	}
	// One that gets this one nevertheless does not start.
	apply(t, next, user(selectors+tolerations))
	event, err := cluster.WaitEvent(t.Context(), next, "user", "already in use")
	must(t, err)
	t.Logf("the next pod: %s", event)
	wantWaiting(t, next, device)

	must(t, stuck.End())
	ready(t, next, "user")
	if got := report(t, next)["user/main"].Device; got != device {
		t.Errorf("the next pod has %s, want %s", got, device)
	}
	waitInUse(t, device, false)
	remove(t, next, "user")
	remove(t, other, "user")
	nothingLeft(t)
}

// waitInUse waits until a device has the taint of a device in use, or has lost it.
func waitInUse(t *testing.T, device string, want bool) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		devices, err := cluster.Devices(ctx)
		taints := devices[device].Taints
		found := slices.ContainsFunc(taints, func(taint resourceapi.DeviceTaint) bool {
			return taint.Key == v1alpha1.TaintInUse && taint.Value == v1alpha1.InUseTaintUnneededClaim
		})
		return found == want, fmt.Sprintf("%s has the taints %v", device, taints), err
	}))
}

// wantWaiting fails the test unless a pod has the device and does not run.
func wantWaiting(t *testing.T, namespace, device string) {
	t.Helper()
	claims, err := cluster.Client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if given := claims.Items[0].Status.Allocation.Devices.Results[0].Device; given != device {
		t.Fatalf("the scheduler gave %s to the pod, and this test is about %s", given, device)
	}
	waiting, err := cluster.Client.CoreV1().Pods(namespace).Get(t.Context(), "user", metav1.GetOptions{})
	must(t, err)
	if waiting.Status.Phase != corev1.PodPending {
		t.Errorf("the pod is %s while a process of another tenant lives on its device", waiting.Status.Phase)
	}
}

// forget deletes a pod by force, and waits until the API server has no claim in the namespace.
func forget(t *testing.T, ns, pod string) {
	t.Helper()
	kubectl(t, "delete", "pod", "-n", ns, pod, "--force", "--grace-period=0")
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		claims, err := cluster.Client.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		return len(claims.Items) == 0, fmt.Sprintf("the API still has %d claims of the pod", len(claims.Items)), nil
	}))
}
