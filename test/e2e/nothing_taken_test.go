// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// TestA404PageForAMinuteTakesNothingFromRunningPods has a load balancer that
// lost the API server answer every question about claims. Each of many rounds of
// reconciliation then finds no claim of the node.
func TestA404PageForAMinuteTakesNothingFromRunningPods(t *testing.T) {
	nothingLeft(t)
	frontend, err := cluster.NewFrontend()
	must(t, err)
	t.Cleanup(func() {
		must(t, agent.Start(context.WithoutCancel(t.Context())))
		frontend.Close()
	})
	kubeconfig, err := frontend.Kubeconfig(agent)
	must(t, err)
	must(t, agent.Upgrade(t.Context(), "--kubeconfig="+kubeconfig, "--reconcile-interval=2s"))
	must(t, agent.WaitReady(t.Context()))
	ns := namespaceFor(t, "lost-apiserver")
	apply(t, ns, "demo/whole-gpu/two-pods.yaml")
	ready(t, ns, "two-pods-a", "two-pods-b")
	before, held := report(t, ns), heldOnNode(t)

	frontend.Lose()
	// Each of thirty rounds reads two claims.
	const pages = 60
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		if diff := cmp.Diff(held, heldOnNode(t)); diff != "" {
			return false, "", fmt.Errorf("what the node holds for its pods changed (-before +after):\n%s", diff)
		}
		return frontend.Pages() >= pages, fmt.Sprintf("the agent was sent %d pages", frontend.Pages()), nil
	}))
	frontend.Find()

	if diff := cmp.Diff(before, report(t, ns)); diff != "" {
		t.Errorf("who holds what changed (-before +after):\n%s", diff)
	}
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
	_, err = agent.Sim(t.Context(), "process", "add", "--gpu", pciAddress(device), "--pid", strconv.Itoa(process.PID()), "--memory", "1024", "--name", "train")
	must(t, err)
	return process.PID(), end
}
