// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const twoLayouts = `
version: v1
mig-configs:
  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  sevenths: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
`

// A wrong word in the ConfigMap, and a new pod of the agent: the node offers the same devices,
// with the MIG devices that it keeps, and the metric reports the mistake. Helm refuses the
// same mistake.
func TestAWrongWordAndARestartLeaveTheNodeAsItIs(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "wrong-word")
	upgrade := func() error { return agent.Upgrade(context.WithoutCancel(t.Context())) }
	configs := map[string]any{
		"halves":   map[string]any{"offer": []string{"mig"}, "mig": map[string]any{"layout": "halves", "keep": true}},
		"isolated": map[string]any{"offer": []string{}},
	}
	t.Cleanup(func() {
		label(t, "gpu.nvidia.com/config-")
		agent.NodeConfigs, agent.MIGLayouts = nil, ""
		forgetConfigs(t)
		must(t, upgrade())
		offersDevices(t, "8 whole GPUs", func(devices map[string]string) bool { return len(devices) == 8 && devices["gpu-1b-00"] == "shared" })
		replaceAgent(t) // which destroys the MIG device that is no longer kept
		nothingLeft(t)
	})
	agent.NodeConfigs, agent.MIGLayouts = configs, strings.Replace(twoLayouts, "1g.10gb: 7", "1g.10gb: seven", 1)
	if err := upgrade(); err == nil || !strings.Contains(err.Error(), "sevenths") {
		t.Fatalf("helm upgrade: %v, want that it refuses the layout sevenths", err)
	}
	agent.MIGLayouts = twoLayouts
	must(t, upgrade())

	label(t, "gpu.nvidia.com/config=halves")
	inHalves := offersDevices(t, "16 MIG devices", func(devices map[string]string) bool { return len(devices) == 16 })
	mig := of("mig.nvidia.com", claim("mig", "", ""))
	apply(t, ns, mig+pod("mig", "mig", ""))
	ready(t, ns, "mig")
	kept := report(t, ns)["mig/main"].UUID
	remove(t, ns, "mig")
	const right, wrong = "mig-devices: {3g", "mig-device: {3g"
	misspell(t, "mig-layouts.yaml", right, wrong)
	replaceAgent(t)
	offersDevices(t, "the same MIG devices", func(devices map[string]string) bool { return cmp.Equal(devices, inHalves) })
	// The sweep of MIG devices that the node does not keep comes with the first claim too.
	apply(t, ns, mig+pod("mig", "mig", ""))
	ready(t, ns, "mig")
	if uuid := report(t, ns)["mig/main"].UUID; uuid != kept {
		t.Errorf("the pod has %s, want %s, which was kept", uuid, kept)
	}
	if f := examine(t)["node-config"]; f.State != doctor.Problem || !strings.Contains(f.Found, `"halves"`) {
		t.Errorf(`doctor says %+v, want "halves"`, f)
	}
	remove(t, ns, "mig")
	misspell(t, "mig-layouts.yaml", wrong, right)

	replaceAgent(t) // which reads the file that is right
	label(t, "gpu.nvidia.com/config=isolated")
	alone := offersDevices(t, "8 GPUs of one claim each", func(devices map[string]string) bool { return len(devices) == 8 && all(devices, "alone") })
	misspell(t, "node-configs.yaml", "isolated:", "isolatde:")
	replaceAgent(t)
	offersDevices(t, "isolatde: the same GPUs", func(devices map[string]string) bool { return cmp.Equal(devices, alone) })
}

// offersDevices waits until the node's devices are as wanted, and returns them, with how they
// can be used. What the agent's metric says of the configuration must be there by then.
func offersDevices(t *testing.T, want string, wanted func(devices map[string]string) bool) map[string]string {
	t.Helper()
	var found map[string]string
	// The kubelet needs up to a minute to update the mount of a ConfigMap.
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		devices, err := cluster.Devices(ctx)
		if err != nil {
			return false, fmt.Sprintf("%v are published, want %s", found, want), err
		}
		found = map[string]string{}
		for name, device := range devices {
			found[name] = "alone"
			if device.AllowMultipleAllocations != nil {
				found[name] = "shared"
			}
			for _, taint := range device.Taints {
				found[name] += fmt.Sprintf(" %s=%s", taint.Key, taint.Value)
			}
		}
		return wanted(found), fmt.Sprintf("%v are published, want %s", found, want), nil
	}))
	return found
}

// all reports whether all devices are used in one way. A GPU that leaves MIG mode has a taint first.
func all(devices map[string]string, use string) bool {
	for _, of := range devices {
		if of != use {
			return false
		}
	}
	return true
}

const configMap = harness.Namespace + "-configs"

// misspell replaces a text of the chart's ConfigMap.
func misspell(t *testing.T, key, old, wrong string) {
	t.Helper()
	content, err := cluster.Kubectl(t.Context(), "get", "configmap", "-n", harness.Namespace, configMap, "-o", "jsonpath={.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
	must(t, err)
	if !strings.Contains(content, old) {
		t.Fatalf("%s has no %q:\n%s", key, old, content)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: strings.Replace(content, old, wrong, 1)}})
	must(t, err)
	kubectl(t, "patch", "configmap", "-n", harness.Namespace, configMap, "--type=merge", "--patch", string(patch))
}

// forgetConfigs deletes the ConfigMap, of which Helm is no longer the only writer.
func forgetConfigs(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "configmap", "-n", harness.Namespace, configMap)
}

// replaceAgent deletes the agent's pod and waits for the next one. If the ConfigMap has a
// mistake, it checks that the agent reports it.
func replaceAgent(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	kubectl(t, "delete", "pod", "-n", harness.Namespace, "-l", "app.kubernetes.io/component=agent")
	must(t, agent.WaitReady(ctx))
	content, err := cluster.Kubectl(ctx, "get", "configmap", "-n", harness.Namespace, configMap, "-o", "jsonpath={.data}")
	must(t, err)
	want := "0"
	if strings.Contains(content, "mig-device:") || strings.Contains(content, "isolatde") {
		want = "1"
	}
	must(t, harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		// The rollout of an upgrade may replace the pod again, so an error is not the end.
		metrics, err := agent.Metrics(ctx)
		return strings.Contains(metrics, "gpu_dra_node_config_problem "+want+"\n"), fmt.Sprintf("gpu_dra_node_config_problem is not %s (%v)", want, err), nil
	}))
}
