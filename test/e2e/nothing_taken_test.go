// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// TestA404PageTakesNothingFromRunningPods has a load balancer that lost the API
// server answer every request about claims. Each round of reconciliation then finds
// no claim of the node.
func TestA404PageTakesNothingFromRunningPods(t *testing.T) {
	nothingLeft(t)
	frontend, err := cluster.NewFrontend()
	must(t, err)
	t.Cleanup(func() {
		must(t, agent.Start(context.WithoutCancel(t.Context())))
		frontend.Close()
	})
	kubeconfig, err := frontend.Kubeconfig(agent)
	must(t, err)
	must(t, agent.Upgrade(t.Context(), "--kubeconfig="+kubeconfig, "--reconcile-interval=1s"))
	must(t, agent.WaitReady(t.Context()))
	ns := namespaceFor(t, "lost-apiserver")
	apply(t, ns, "demo/whole-gpu/two-pods.yaml")
	ready(t, ns, "two-pods-a", "two-pods-b")
	before, held := report(t, ns), heldOnNode(t)

	frontend.Lose()
	// Each of ten rounds reads two claims.
	const pages = 20
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		if diff := cmp.Diff(held, heldOnNode(t)); diff != "" {
			return false, "", fmt.Errorf("what the node holds for its pods changed (-before +after):\n%s", diff)
		}
		return frontend.Pages() >= pages, fmt.Sprintf("the agent was sent %d pages", frontend.Pages()), nil
	}))
	frontend.Find()

	require.Same(t, "who holds what changed", before, report(t, ns))
	remove(t, ns, "two-pods-a", "two-pods-b")
	nothingLeft(t)
}

// heldOnNode returns the CDI files with their contents and the names of the
// records of claims.
func heldOnNode(t *testing.T) map[string]string {
	t.Helper()
	files := cdiFiles(t)
	records, err := os.ReadDir(filepath.Join(agent.Home(), "claims"))
	must(t, err)
	for _, record := range records {
		files["record "+record.Name()] = ""
	}
	return files
}

// computesOn starts a process of a pod that no signal ends, and that computes on a device. It ends
// with end, or with the test.
func computesOn(t *testing.T, device, namespace, pod string) (pid int, end func()) {
	t.Helper()
	of, err := cluster.Client.CoreV1().Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{})
	must(t, err)
	process, err := harness.NewStuck(t.Context(), of.UID)
	must(t, err)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		must(t, process.End())
	}
	t.Cleanup(end)
	sim(t, "process", "add", "--gpu", pciAddress(device), "--pid", strconv.Itoa(process.PID()), "--memory", "1024", "--name", "train")
	return process.PID(), end
}

// TestAForcedDeletionFreesNoGPUUnderAProcessThatStays deletes a pod so that the API
// and the kubelet forget it. A process of the pod still computes.
func TestAForcedDeletionFreesNoGPUUnderAProcessThatStays(t *testing.T) {
	nothingLeft(t)
	ns, next := namespaceFor(t, "forced"), namespaceFor(t, "forced-next")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	device := report(t, ns)["one-gpu/main"].Device
	pid, end := computesOn(t, device, ns, "one-gpu")

	forget(t, ns, "one-gpu")
	apply(t, next, "demo/whole-gpu/one-gpu.yaml")
	process := fmt.Sprintf("process %d", pid)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		claims, err := cluster.Client.ResourceV1().ResourceClaims(next).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		if len(claims.Items) != 1 || claims.Items[0].Status.Allocation == nil {
			return false, "the next pod's claim is not allocated", nil
		}
		if given := claims.Items[0].Status.Allocation.Devices.Results[0].Device; given != device {
			return false, "", fmt.Errorf("the scheduler gave %s to the next pod, and this test is about %s", given, device)
		}
		waiting, err := cluster.Client.CoreV1().Pods(next).Get(ctx, "one-gpu", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		if waiting.Status.Phase != corev1.PodPending {
			return false, "", fmt.Errorf("the next pod is %s while %s is on its GPU", waiting.Status.Phase, process)
		}
		log, err := agent.Log(ctx)
		return strings.Contains(log, process), "the agent does not speak of " + process + " yet", err
	}))

	end()
	ready(t, next, "one-gpu")
	if got := report(t, next)["one-gpu/main"].Device; got != device {
		t.Errorf("the next pod has %s, want %s", got, device)
	}
	remove(t, next, "one-gpu")
	nothingLeft(t)
}
