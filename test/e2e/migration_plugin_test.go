// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

func TestMigrationWhileTheDevicePluginsPodsRunOn(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "plugin-beside")
	names := byUUID(t)
	const shared = corev1.ResourceName("nvidia.com/gpu.shared")
	must(t, agent.Stop(t.Context())) // the kubelet, which is restarted, deletes its slices
	plugin := startPlugin(t, map[corev1.ResourceName]int64{shared: int64(4 * len(names))}, timeSlices)
	must(t, agent.Start(t.Context()))
	inUse := func(what string, want ...string) {
		t.Helper()
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			got, err := taintedInUse(ctx)
			return slices.Equal(got, want), fmt.Sprintf("%s: %v are in use, want %v", what, got, want), err
		}))
	}

	apply(t, ns, pod("legacy", "", "nvidia.com/gpu.shared: 1"))
	apply(t, ns, pod("two", "", "nvidia.com/gpu.shared: 2"))
	ready(t, ns, "legacy")
	refused, err := cluster.WaitEvent(t.Context(), ns, "two", "maximum request size for shared resources is 1")
	must(t, err)
	t.Logf("two replicas: %s", refused)
	uuid := onlyGPU(t, ns, "legacy")
	allocated := names[uuid]
	inUse("with a pod of the plugin", allocated)

	selected := fmt.Sprintf(`selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].uuid == '%s'"}}]`, uuid)
	apply(t, ns, claim("waits", selected, "")+pod("waits", "waits", ""))
	_, err = cluster.Unschedulable(t.Context(), ns, "waits")
	must(t, err)

	// Who tolerates the taint comes as far as the node.
	apply(t, ns, claim("insists", selected+"\ntolerations: [{key: gpu.nvidia.com/in-use, operator: Exists}]", "")+pod("insists", "insists", ""))
	event, err := cluster.WaitEvent(t.Context(), ns, "insists", "a device plugin of this node has given it")
	must(t, err)
	log, err := agent.Log(t.Context())
	must(t, err)
	// Which pod has it is for administrators.
	if legacy := ns + "/legacy"; strings.Contains(event, legacy) || !strings.Contains(log, legacy) {
		t.Errorf("the event %q names pod %s, or the agent's log does not", event, legacy)
	}
	remove(t, ns, "insists")
	kubectl(t, "delete", "resourceclaim", "-n", ns, "insists")

	// The plugin goes; its pod has its GPU still, and pods like it get others.
	plugin.stop(t)
	plugin.offers(t, map[corev1.ResourceName]int64{shared: 0})
	// A kubelet that has just started lists no pods. The taint stays all the same, and the
	// claim that waits for the GPU is not allocated it.
	must(t, cluster.Restart(t.Context(), "kubelet"))
	apply(t, ns, pod("moved", "", "nvidia.com/gpu: 7"))
	ready(t, ns, "moved")
	rows, err := cluster.Report(t.Context(), ns)
	must(t, err)
	moved := 0
	for _, row := range rows {
		if row.Pod == "moved" {
			moved++
			if row.UUID == uuid {
				t.Errorf("a claim was given %s, which %s/legacy has", row.Device, ns)
			}
		}
	}
	if moved != 7 {
		t.Errorf("the pod has %d GPUs by a claim, want seven", moved)
	}
	inUse("after the plugin", allocated)
	_, err = cluster.Unschedulable(t.Context(), ns, "waits")
	must(t, err)
	remove(t, ns, "legacy")
	inUse("after its pod")
	ready(t, ns, "waits")
}
