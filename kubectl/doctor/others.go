// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkDrivers reports GPUs that another DRA driver publishes too. NVIDIA's driver for
// ComputeDomains publishes channels, not GPUs.
func checkDrivers(c *Cluster) []Finding {
	publishers := map[string]map[string][]string{}
	names := map[string]bool{}
	for _, slice := range c.Slices {
		names[slice.Spec.Driver] = true
		for _, device := range slice.Spec.Devices {
			for _, value := range device.Attributes {
				if v := value.StringValue; v != nil && strings.HasPrefix(*v, "GPU-") {
					if publishers[*v] == nil {
						publishers[*v] = map[string][]string{}
					}
					publishers[*v][slice.Spec.Driver] = append(publishers[*v][slice.Spec.Driver], slice.Spec.Pool.Name)
				}
			}
		}
	}
	var findings []Finding
	twice := map[[2]string][]string{}
	for _, uuid := range slices.Sorted(maps.Keys(publishers)) {
		drivers := publishers[uuid]
		own := drivers[c.Driver]
		for _, other := range slices.Sorted(maps.Keys(drivers)) {
			if own != nil && other != c.Driver {
				twice[[2]string{own[0], other}] = append(twice[[2]string{own[0], other}], uuid)
			}
		}
	}
	for _, agent := range c.Agents {
		if pod := c.nvidiaDriver(agent.Spec.NodeName); pod != nil {
			findings = append(findings, newFinding("nvidia-dra-driver", onNode(agent.Spec.NodeName),
				fmt.Sprintf("pod %s/%s of NVIDIA's own DRA driver runs on the node too", pod.Namespace, pod.Name), "both publish and prepare the same GPUs",
				"set resources.gpus.enabled=false in the chart of NVIDIA's driver, which keeps its ComputeDomains, or exclude the node by nodes.withoutLabels of this chart"))
		}
	}
	for _, node := range c.foreignNodes() {
		findings = append(findings, newFinding("driver-of-same-name", onNode(node), "another driver of the name "+c.Driver+" serves the node too",
			"the kubelet calls only the driver that registered last, the pods of the other one stay in ContainerCreating, and both replace each other's ResourceSlices",
			"remove one of the drivers from the node"))
	}
	for where, uuids := range twice {
		findings = append(findings, newFinding("gpu-published-twice", onNode(where[0]),
			fmt.Sprintf("the driver %s publishes %s of the node too", where[1], fleet.Number(len(uuids), "GPU")), "the scheduler promises each of these GPUs twice",
			"remove one of the drivers from the node, for example by nodes.withoutLabels of the chart"))
	}
	return orOK(findings, "drivers with devices: "+cmp.Or(list(slices.Sorted(maps.Keys(names))), "none"))
}

// foreignNodes returns the nodes that another driver of the same name serves too. It publishes
// devices there that no agent publishes, or the agent has found it and says so in its claims.
func (c *Cluster) foreignNodes() []string {
	nodes := map[string]bool{}
	for _, agent := range c.Agents {
		if node := agent.Spec.NodeName; c.HasOtherDriver(c.Driver, node) {
			nodes[node] = true
		}
	}
	for _, claim := range c.ownClaims() {
		for _, device := range claim.Status.Devices {
			if device.Driver == c.Driver && meta.IsStatusConditionTrue(device.Conditions, v1alpha1.ConditionOtherDriver) {
				nodes[device.Pool] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// nvidiaDriver returns the pod of NVIDIA's own DRA driver that publishes the GPUs of a
// node. It returns nil if there is none. Its container for ComputeDomains has another name.
func (c *Cluster) nvidiaDriver(node string) *corev1.Pod {
	return fleet.First(c.Pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == node && slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
			return container.Name == "gpus" && strings.Contains(container.Image, "dra-driver")
		})
	})
}

// devicePluginImage is a part of the image of NVIDIA's device plugin.
const devicePluginImage = "k8s-device-plugin"

func checkDevicePlugins(c *Cluster) []Finding {
	var findings []Finding
	for _, pod := range c.podsNearGPUs() {
		if !slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
			return strings.Contains(container.Image, devicePluginImage)
		}) {
			continue
		}
		findings = append(findings, newFinding("device-plugin-on-node", onNode(pod.Spec.NodeName),
			fmt.Sprintf("pod %s/%s runs NVIDIA's device plugin", pod.Namespace, pod.Name),
			"two programs allocate the node's GPUs: a GPU of the device plugin gets the taint gpu.nvidia.com/in-use, and the device plugin does not know of claims",
			"remove the device plugin from the node, or exclude the node by nodes.withoutLabels of the chart"))
	}
	return orOK(findings, "no node of the driver runs NVIDIA's device plugin")
}

// checkKubelets reports nodes whose kubelet or container runtime is too old.
func checkKubelets(c *Cluster) []Finding {
	var findings []Finding
	for _, node := range c.nodesWithGPUs() {
		info := node.Status.NodeInfo
		if v, err := version.ParseGeneric(info.KubeletVersion); err == nil && v.LessThan(oldestServer()) {
			findings = append(findings, newFinding("kubelet-too-old", onNode(node.Name), "kubelet "+info.KubeletVersion, "it does not prepare claims of resource.k8s.io/v1",
				"upgrade the kubelet to 1.34 or newer"))
		}
		facts := c.Facts[node.Name].Value
		findings = slices.Concat(findings, hugePagesOf(node, facts), runtimeOf(node, facts), c.replacedShm(node), c.unreadSpecs(node, facts))
	}
	return orOK(findings, "kubelets and container runtimes are new enough")
}

// hugePagesOf returns a finding if the kubelet reports fewer huge pages than the kernel has;
// nil otherwise. Sizes are as in the kernel's names of folders, "2048kB".
func hugePagesOf(node *corev1.Node, facts *agentv1.Node) []Finding {
	if facts == nil {
		return nil
	}
	for _, size := range slices.Sorted(maps.Keys(facts.HugePages.Value)) {
		bytes, err := resource.ParseQuantity(strings.TrimSuffix(size, "kB") + "Ki")
		pages := facts.HugePages.Value[size]
		if err != nil || pages == 0 {
			continue
		}
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + bytes.String())
		if have := node.Status.Capacity[name]; have.Value() < bytes.Value()*int64(pages) { //nolint:gosec // far fewer pages fit in a machine
			return []Finding{newFinding("huge-pages-not-counted", onNode(node.Name),
				fmt.Sprintf("the kernel has %d huge pages of %s, the kubelet reports %s of %s", pages, size, have.String(), name), "pods cannot request all huge pages",
				"restart the kubelet, which counts them when it starts")}
		}
	}
	return nil
}

// checkFacts reports the agents that did not answer.
func checkFacts(c *Cluster) []Finding {
	if reason := c.Unread[AgentFacts]; reason != "" {
		return ofCluster("facts-not-readable", reason, "the settings of the nodes are not checked", "bind the Role gpu-dra-driver-viewer in the driver's namespace to your user")
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(c.Facts)) {
		if err := c.Facts[node].Err; err != nil {
			findings = append(findings, newFinding("agent-does-not-answer", onNode(node), err.Error(), "the settings of the node are not checked", factsRemedy(err)))
		}
	}
	return orOK(findings, fleet.Number(len(c.Facts), "agent")+" answered")
}

func factsRemedy(err error) string {
	if errors.Is(err, gpu.ErrPermission) {
		return "bind the Role gpu-dra-driver-viewer in the driver's namespace to your user"
	}
	return "check that the agent is ready, that viewers.enabled is set in the chart, and that NetworkPolicies admit the API server to the agent's port (networkPolicy.from)"
}
