// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A node moves through the pools of a release while a pod has a share of a GPU. It
// moves by its label and by an update of the chart's values. Neither the pod nor the
// agent is restarted, and each pool serves its own pods.
func TestANodeMovesThroughThePoolsOfARelease(t *testing.T) {
	nothingLeft(t)
	agentPod := func() string {
		uid, err := cluster.Kubectl(t.Context(), "get", "pods", "-n", harness.Namespace, "-l", "app.kubernetes.io/component=agent", "-o", "jsonpath={.items[*].metadata.uid}")
		must(t, err)
		return uid
	}
	before := agentPod()
	// The kubelet needs up to a minute to update the mount of the ConfigMap.
	update := func(configs map[string]any) {
		t.Helper()
		agent.NodeConfigs = configs
		must(t, agent.Upgrade(context.WithoutCancel(t.Context())))
	}
	problem := func(want string) {
		t.Helper()
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			metrics, err := agent.Metrics(ctx)
			return strings.Contains(metrics, "gpu_dra_node_config_problem "+want+"\n"), "gpu_dra_node_config_problem is not " + want, err
		}))
	}
	t.Cleanup(func() {
		label(t, "gpu.nvidia.com/config-")
		update(nil)
		publishes(t, 8)
	})
	ns := namespaceFor(t, "pools")

	training := map[string]any{"offer": []string{}}
	inference := map[string]any{"offer": []string{"share", "mig"}, "mig": map[string]any{"profiles": []string{"1g.10gb"}, "gpus": 2}}
	development := map[string]any{"offer": []string{"share", "timeslice"}, "timeslice": map[string]any{"slots": 2}}
	update(map[string]any{"training": training, "inference": inference})
	apply(t, ns, share("steady", "10Gi", "")+pod("steady", "steady", ""))
	ready(t, ns, "steady")

	label(t, "gpu.nvidia.com/config=inference")
	publishes(t, 8+2*7)
	apply(t, ns, of("mig.nvidia.com", claim("mig", "", ""))+pod("mig", "mig", ""))
	ready(t, ns, "mig")
	remove(t, ns, "mig")

	label(t, "gpu.nvidia.com/config=training")
	publishes(t, 8)
	apply(t, ns, claim("whole", "", "")+pod("whole", "whole", ""))
	ready(t, ns, "whole")
	if rows := report(t, ns); rows["whole/main"].UUID == rows["steady/main"].UUID {
		t.Errorf("a whole GPU is %s, of which a pod has a share", rows["whole/main"].UUID)
	}
	apply(t, ns, share("other", "10Gi", "")+pod("other", "other", ""))
	_, err := cluster.Unschedulable(t.Context(), ns, "other")
	must(t, err)

	// The name is a mistake until the values have the configuration.
	label(t, "gpu.nvidia.com/config=development")
	problem("1")
	publishes(t, 8)
	update(map[string]any{"training": training, "inference": inference, "development": development})
	publishes(t, 8+8)
	problem("0")
	ready(t, ns, "other")
	apply(t, ns, pod("slot", "", "nvidia.com/gpu.shared: 1"))
	ready(t, ns, "slot")

	for _, name := range []string{"steady", "whole"} {
		restarts, err := cluster.Kubectl(t.Context(), "get", "pod", name, "-n", ns, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
		must(t, err)
		if restarts != "0 true" {
			t.Errorf("%s has restarted so often, and is ready: %s", name, restarts)
		}
	}
	if after := agentPod(); after != before {
		t.Errorf("the agent's pod is %s, and was %s", after, before)
	}
}
