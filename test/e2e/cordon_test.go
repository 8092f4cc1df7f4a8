// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// An administrator takes one GPU out of use while the others continue.
func TestAGPUIsTakenOutOfUseAndBroughtBack(t *testing.T) {
	needsKubernetes(t, "1.37", "DeviceTaintRules")
	nothingLeft(t)
	users := namespaceFor(t, "cordon")
	sick := cluster.NodeName + "/gpu-1b-00"
	t.Cleanup(func() {
		if _, err := cluster.GPU(context.WithoutCancel(t.Context()), "uncordon", sick); err != nil {
			t.Error(err)
		}
	})
	free := func(want string) {
		t.Helper()
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			out, err := cluster.GPU(ctx, "free", "gpu.nvidia.com")
			return strings.HasSuffix(strings.TrimSpace(out), " "+want), out, err
		}))
	}
	free("8")
	_, err := cluster.GPU(t.Context(), "cordon", sick, "--reason", "fan")
	must(t, err)
	free("7")
	if out, err := cluster.GPU(t.Context(), "get"); err != nil || !strings.Contains(out, "cordoned") {
		t.Errorf("get printed %s, %v", out, err)
	}
	// The scheduler follows the rules too.
	apply(t, users, claim("all", "count: 8", "")+pod("all", "all", ""))
	if _, err := cluster.Unschedulable(t.Context(), users, "all"); err != nil {
		t.Error(err)
	}
	remove(t, users, "all")
	testCordonOfALaterOffer(t)
	_, err = cluster.GPU(t.Context(), "uncordon", sick)
	must(t, err)
	free("8")

	apply(t, users, trainBudget+replicas("train", 8, claim("train", "", ""), ""))
	must(t, cluster.WaitCount(t.Context(), users, 8))
	// The budget admits no eviction, so the drain waits.
	out, err := cluster.GPU(t.Context(), "drain", sick, "--timeout", "5s")
	if err == nil || !strings.Contains(out, "disruption budget") || !strings.Contains(out, "timed out after 5s") {
		t.Fatalf("a drain against a budget: %v\n%s", err, out)
	}
	drain := exec.CommandContext(t.Context(), filepath.Join(cluster.Bin, "kubectl-gpu"), "--kubeconfig", cluster.Kubeconfig, "drain", sick, "--timeout", "2m")
	var text strings.Builder
	drain.Stdout, drain.Stderr = &text, &text
	must(t, drain.Start())
	kubectl(t, "delete", "-n", users, "poddisruptionbudget/train")
	if err := drain.Wait(); err != nil || !strings.Contains(text.String(), sick+" is drained: no claim has it") {
		t.Fatalf("a drain without a budget: %v\n%s", err, text.String())
	}
	gpus, err := cluster.GPUs(t.Context())
	must(t, err)
	for _, g := range gpus {
		if n := g.Claims(); n != 0 && g.Name == "gpu-1b-00" || n != 1 && g.Name != "gpu-1b-00" {
			t.Errorf("%s has %d claims", g.Name, n)
		}
	}
	// The evicted pod waits for the GPU, and gets it.
	_, err = cluster.GPU(t.Context(), "uncordon", sick)
	must(t, err)
	must(t, cluster.WaitCount(t.Context(), users, 8))
}

// testCordonOfALaterOffer changes what the node offers while one GPU is cordoned: no pod gets a
// MIG device of it.
func testCordonOfALaterOffer(t *testing.T) {
	label(t, "gpu.nvidia.com/offer=share.mig")
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.GPU(ctx, "free", "mig-7g.80gb")
		return strings.HasSuffix(strings.TrimSpace(out), " 7"), out, err
	}))
	label(t, "gpu.nvidia.com/offer-")
}

// trainBudget is a budget by which all eight pods must remain.
const trainBudget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: train}
spec:
  minAvailable: 8
  selector: {matchLabels: {app: train}}
---
`
