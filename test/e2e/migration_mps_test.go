// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// mpsRoot is where NVIDIA's device plugin and its MPS control daemon have their common
// folder. No flag changes it.
const mpsRoot = "/mps"

// A node with replicas by MPS, of NVIDIA's device plugin and its MPS control daemon, moves to
// seats as docs/admin/device-plugin-differences.md says.
func TestMigrationOfMPSReplicasOfTheDevicePlugin(t *testing.T) {
	const shared = corev1.ResourceName("nvidia.com/gpu.shared")
	var plugin nvidiaPlugin
	var daemon harness.Foreign
	runAfter(t, func(ctx context.Context) error {
		must(t, agent.CreateNode(ctx))
		plugin, daemon = startReplicas(t, map[corev1.ResourceName]int64{shared: 32})
		return nil
	}, "gpu-1b-00-seat", "dgx-h100", "--offer=share,seat")
	ns := namespaceFor(t, "plugin-mps")
	apply(t, ns, pod("legacy", "", "nvidia.com/gpu.shared: 1"))
	ready(t, ns, "legacy")
	uuid := onlyGPU(t, ns, "legacy")

	// A quarter of the GPU's memory, as NVML reports it, and of its multiprocessors.
	const limit = int64(81559) / 4 << 20
	client := ask(t, ns, "legacy", "--memory", "18Gi")
	if !client.MPS || client.Client.ActiveThreadPercentage != 25 || client.Limit() != limit || client.AllocatedBytes != 18*gi {
		t.Errorf("a replica is a client of MPS: %t, is held to %v %% and %d bytes, and got %d; want 25 %%, %d and 18Gi: %q",
			client.MPS, client.Client.ActiveThreadPercentage, client.Limit(), client.AllocatedBytes, limit, client.Error.Message)
	}
	wantRefused(t, ns, "legacy", limit)

	// Step 3 of the guide: the pods end with the plugin, because their daemon does.
	plugin.stop(t)
	plugin.offers(t, map[corev1.ResourceName]int64{shared: 0})
	remove(t, ns, "legacy")
	must(t, cluster.StopForeign(t.Context(), daemon.Name))
	for _, g := range simulated(t).GPUs {
		if g.ComputeMode != "Default" {
			t.Errorf("the control daemon has left GPU %s in compute mode %s", g.UUID, g.ComputeMode)
		}
	}
	seatsServe(t, string(shared))
	apply(t, ns, pod("moved", "", "nvidia.com/gpu.shared: 1"))
	ready(t, ns, "moved")
	if row := report(t, ns)["moved/main"]; !strings.HasSuffix(row.Device, "-seat") {
		t.Errorf("the pod has %s by a claim, want a seat (the plugin's pod had %s)", row.Device, uuid)
	}
	// docs/admin/device-plugin-differences.md names both amounts.
	if got := ask(t, ns, "moved", "--memory", "1Gi").Limit() >> 20; got != 20232 || limit>>20 != 20389 {
		t.Errorf("a seat is limited to %d MiB and a replica to %d, want 20232 and 20389", got, limit>>20)
	}
}

// startReplicas starts NVIDIA's MPS control daemon and device plugin, with four replicas of
// each GPU.
func startReplicas(t *testing.T, want map[corev1.ResourceName]int64) (nvidiaPlugin, harness.Foreign) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "mps")
	shm := filepath.Join(root, "shm")
	must(t, os.MkdirAll(shm, 0o755))
	daemon := nvidiaProgram(t, "mps-control", "mps-control-daemon", mpsReplicas)
	daemon.Folders[mpsRoot], daemon.Folders["/dev/shm"] = root, shm
	t.Cleanup(func() { must(t, cluster.StopForeign(context.WithoutCancel(t.Context()), daemon.Name)) })
	must(t, cluster.StartForeign(t.Context(), daemon))
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		_, err := os.Stat(filepath.Join(root, ".ready"))
		text, _ := os.ReadFile(cluster.ForeignLog(daemon.Name))
		return err == nil, "the MPS control daemon is not ready:\n" + string(text), nil
	}))
	return startPluginIn(t, map[string]string{mpsRoot: root}, want, mpsReplicas, "--mps-root="+root), daemon
}
