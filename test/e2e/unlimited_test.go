// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A container that needs more memory than its limit is restarted again and again. The test
// removes the hook from the claim's CDI spec, as if the runtime ran no hooks, and the
// container gets the memory that it needs. No agent runs meanwhile: it would repair the
// spec.
func TestAContainerWithoutItsMemoryLimitIsFound(t *testing.T) {
	runWithDriver(t, "gpu-1b-00", "dgx-h100-r615", "--reconcile-interval=2s")
	ns := namespaceFor(t, "unlimited")
	apply(t, ns, share("a", "10Gi", config("ShareConfig", `"require": "driver", "containers": 2`))+
		cudaPod("limited", []string{"a"}, "--no-mps", "--memory", "1Gi")+
		cudaPod("unlimited", []string{"a"}, "--no-mps", "--memory", "20Gi"))
	ready(t, ns, "limited")
	printed := func(want string, isWanted func(harness.CUDA) bool) {
		t.Helper()
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			got, err := cluster.CUDA(ctx, ns, "unlimited", "main")
			return isWanted(got), fmt.Sprintf("the container has %d bytes and the error %+v, want %s", got.AllocatedBytes, got.Error, want), err
		}))
	}
	printed("a refusal", func(c harness.CUDA) bool { return c.Error.Name == "OUT_OF_MEMORY" })
	claim, err := cluster.Client.ResourceV1().ResourceClaims(ns).Get(t.Context(), "a", metav1.GetOptions{})
	must(t, err)
	must(t, agent.Stop(t.Context()))
	removeMemoryHook(t, claim.UID)
	printed("20 GiB", func(c harness.CUDA) bool { return c.AllocatedBytes == 20*gi })
	must(t, agent.Start(t.Context()))

	waitUnlimited(t, claim, 1)
	pod, err := cluster.Client.CoreV1().Pods(ns).Get(t.Context(), "unlimited", metav1.GetOptions{})
	must(t, err)
	log, err := agent.Log(t.Context())
	must(t, err)
	if line := fmt.Sprintf(`"A container computes without its memory limit".* podUID=%q`, pod.UID); !regexp.MustCompile(line).MatchString(log) {
		t.Errorf("the log does not name the container: no %s", line)
	}

	remove(t, ns, "unlimited")
	waitUnlimited(t, claim, 0)
	remove(t, ns, "limited")
	nothingLeft(t)
}

// removeMemoryHook removes the hook that limits memory from the CDI spec of a claim.
func removeMemoryHook(t *testing.T, claim types.UID) {
	t.Helper()
	file := filepath.Join(cluster.CDIDir, fmt.Sprintf("%s-claim-%s.json", harness.DriverName, claim))
	text, err := os.ReadFile(file)
	must(t, err)
	var spec specs.Spec
	must(t, json.Unmarshal(text, &spec))
	removed := 0
	for i := range spec.Devices {
		edits := &spec.Devices[i].ContainerEdits
		all := len(edits.Hooks)
		edits.Hooks = slices.DeleteFunc(edits.Hooks, isMemoryHook)
		removed += all - len(edits.Hooks)
	}
	if removed != 1 {
		t.Fatalf("%d hooks limit memory, want 1:\n%s", removed, text)
	}
	text, err = json.Marshal(spec)
	must(t, err)
	// Runtimes read .json and .yaml only, and must not read half of a spec.
	must(t, os.WriteFile(file+".tmp", text, 0o600))
	must(t, os.Rename(file+".tmp", file))
}

// isMemoryHook reports whether the hook runs the program that limits memory, by a loader that
// comes with it.
func isMemoryHook(h *specs.Hook) bool {
	return slices.ContainsFunc(h.Args, func(arg string) bool { return filepath.Base(arg) == home.MemoryHookName })
}

// waitUnlimited waits until the agent counts a number of containers without a memory
// limit on the claim's device. The claim must have the condition if there are any.
func waitUnlimited(t *testing.T, claim *resourceapi.ResourceClaim, count int) {
	t.Helper()
	device := claim.Status.Allocation.Devices.Results[0].Device
	line := fmt.Sprintf("gpu_dra_unlimited_containers{device=%q} %d\n", device, count)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		metrics, err := agent.Metrics(ctx)
		if err != nil || !strings.Contains(metrics, line) {
			return false, "the metrics do not have " + line, err
		}
		now, err := cluster.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil || len(now.Status.Devices) != 1 {
			return false, "status.devices does not have the device", err
		}
		conditions := now.Status.Devices[0].Conditions
		found := meta.FindStatusCondition(conditions, v1alpha1.ConditionMemoryUnlimited)
		wanted := found == nil
		if count > 0 {
			wanted = found != nil && found.Status == metav1.ConditionTrue && found.Reason == v1alpha1.ReasonNoHook
		}
		return wanted, fmt.Sprintf("the claim has the conditions %+v with %d containers without a limit", conditions, count), nil
	}))
}
