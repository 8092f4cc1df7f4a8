// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

func checkAgents(c *Cluster) []Finding {
	if len(c.Agents) == 0 {
		if set := fleet.First(c.DaemonSets, isAgent); set != nil && set.Status.DesiredNumberScheduled == 0 {
			return ofCluster("no-node-selected", fmt.Sprintf("the DaemonSet %s selects no node", set.Name), "no node publishes its GPUs",
				"label the nodes with GPUs, by GPU or node feature discovery, or with gpu.nvidia.com/offer=share; nodes.withAnyLabel in the chart lists the labels")
		}
		return ofCluster("agent-missing", "no pod of an agent for the driver "+c.Driver, "no node publishes its GPUs", "install the chart; for a driver with another name add --driver-name, and for one whose policies lack the annotation "+v1alpha1.AnnotationDriverNamespace+" --driver-namespace")
	}
	return orOK(c.notReady(c.Agents, "agent-not-ready", "pods with claims do not start or end on the node"), fleet.Number(len(c.Agents), "agent")+" ready")
}

func isAgent(d *appsv1.DaemonSet) bool { return d.Labels[ComponentLabel] == AgentComponent }

// The labels of the driver's objects in the chart.
const (
	NameLabel           = "app.kubernetes.io/name"
	ChartName           = "gpu-dra-driver"
	ComponentLabel      = "app.kubernetes.io/component"
	AgentComponent      = "agent"
	SupervisorComponent = "supervisor"
)

// notReady returns a finding for each node without a pod that is ready.
func (c *Cluster) notReady(pods []*corev1.Pod, code, meaning string) []Finding {
	byNode := map[string]*corev1.Pod{}
	for _, pod := range pods {
		// In an update a node has two.
		if known := byNode[pod.Spec.NodeName]; known == nil || !fleet.IsReady(known) {
			byNode[pod.Spec.NodeName] = pod
		}
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		if pod := byNode[node]; !fleet.IsReady(pod) {
			findings = append(findings, newFinding(code, onNode(cmp.Or(node, "?")), fmt.Sprintf("pod %s is not ready%s: %s", pod.Name, c.since(NotReadySince(pod)), WhyNotReady(pod)), meaning,
				fmt.Sprintf("run kubectl --namespace %s describe pod %s, and kubectl logs of it; /readyz of an agent lists the checks that fail", pod.Namespace, pod.Name)))
		}
	}
	return findings
}

// NotReadySince returns when a pod stopped being ready, or was created; zero if neither is known.
func NotReadySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && !condition.LastTransitionTime.IsZero() {
			return condition.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// since returns " for 12m"; nothing if the time is not known.
func (c *Cluster) since(begin time.Time) string {
	if begin.IsZero() {
		return ""
	}
	return " for " + fleet.Age(begin, c.Now)
}

// WhyNotReady returns a clause about a pod that is not ready.
func WhyNotReady(pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
		if s.RestartCount > 0 && !s.Ready {
			return "its container has restarted " + fleet.Number(int(s.RestartCount), "time")
		}
	}
	for _, c := range pod.Status.Conditions {
		summary := c.Type == corev1.PodReady || c.Type == corev1.ContainersReady
		if c.Status == corev1.ConditionFalse && c.Message != "" && !summary {
			return c.Message
		}
	}
	if pod.Status.Phase == corev1.PodRunning {
		return "it does not pass its readiness check"
	}
	return "phase " + string(pod.Status.Phase)
}

func checkSupervisors(c *Cluster) []Finding {
	const meaning = "MPS shares on the node are not prepared, and running ones are not watched"
	findings := c.notReady(c.Supervisors, "supervisor-not-ready", meaning)
	without := 0
	for _, agent := range c.Agents {
		if Argument(&agent.Spec, "mps-supervisor") == "" {
			without++
			continue
		}
		if !slices.ContainsFunc(c.Supervisors, func(s *corev1.Pod) bool { return s.Spec.NodeName == agent.Spec.NodeName }) {
			findings = append(findings, newFinding("supervisor-missing", onNode(agent.Spec.NodeName), "the agent expects an MPS supervisor, and the node has none", meaning,
				"check the DaemonSet of the supervisor: kubectl --namespace "+agent.Namespace+" get daemonsets; or set mps.enabled=false"))
		}
	}
	if without > 0 && without == len(c.Agents) {
		return orOK(findings, "the agents use no MPS (mps.enabled=false)")
	}
	return orOK(findings, fleet.Number(len(c.Supervisors), "supervisor")+" ready")
}

// Argument returns the value of a flag of a pod's first container.
func Argument(pod *corev1.PodSpec, flag string) string {
	if len(pod.Containers) == 0 {
		return ""
	}
	for _, arg := range pod.Containers[0].Args {
		if value, found := strings.CutPrefix(arg, "--"+flag+"="); found {
			return value
		}
	}
	return ""
}

// checkSlices compares the nodes that publish devices with the nodes that run an agent.
func checkSlices(c *Cluster) []Finding {
	var findings []Finding
	published := c.gpuNodes()
	for _, node := range published {
		switch {
		case c.Unread[Nodes] == "" && !c.hasNode(node):
			findings = append(findings, newFinding("slices-of-missing-node", onNode(node), "it publishes devices and does not exist",
				"pods are not scheduled to these devices, which the tables of GPUs still show",
				"delete its ResourceSlices: kubectl delete resourceslices --field-selector spec.nodeName="+node))
		case !c.hasAgent(node) && c.nvidiaDriver(node) == nil:
			findings = append(findings, newFinding("node-without-agent", onNode(node), "it publishes devices and has no agent",
				"pods that are scheduled there stay in ContainerCreating, and ending ones in Terminating",
				"check that the node has one of the labels in nodes.withAnyLabel and none in nodes.withoutLabels; if the driver was removed, delete the node's ResourceSlices"))
		}
	}
	for _, agent := range c.Agents {
		if node := agent.Spec.NodeName; fleet.IsReady(agent) && !slices.Contains(published, node) {
			findings = append(findings, newFinding("node-without-devices", onNode(node), "its agent is ready, and it publishes no devices", "no claim gets a GPU of the node",
				fmt.Sprintf("load the NVIDIA driver on the node; if it is loaded, driver.root of the chart is wrong: kubectl --namespace %s logs %s names the folders that were searched", agent.Namespace, agent.Name)))
		}
	}
	return orOK(findings, fleet.Number(len(published), "node")+" with an agent and devices")
}

func checkPools(c *Cluster) []Finding {
	var findings []Finding
	for _, node := range c.view.IncompleteNodes() {
		findings = append(findings, newFinding("pool-incomplete", onNode(node), "some slices of its pool are missing",
			"the scheduler allocates none of its devices until the pool is complete, which takes seconds",
			"if it lasts, restart the node's agent, which publishes the pool again"))
	}
	return orOK(findings, fleet.Number(len(c.nodes), "pool")+" complete")
}
