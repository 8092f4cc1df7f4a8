// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Agent is the state of the driver's agent on a node that should have one.
type Agent struct {
	Ready bool
	// Problem is the reason if the agent is not ready.
	Problem Reason
}

// NoAgents reports whether devices are published and the cluster has no agent of the driver.
func (c *Cluster) NoAgents() bool {
	return c.Agents != nil && len(c.Agents) == 0 && len(c.Fleet.Nodes()) > 0
}

// AgentsOf returns the agents by node: on nodes with a pod of an agent, and on nodes that
// its DaemonSet selects. It returns nil if the driver's pods are not known.
func AgentsOf(d *doctor.Cluster, nodes []*corev1.Node) map[string]Agent {
	sets := slices.DeleteFunc(slices.Clone(d.DaemonSets), func(s *appsv1.DaemonSet) bool {
		return s.Labels[doctor.ComponentLabel] != doctor.AgentComponent
	})
	if d.Unread[doctor.DriverPods] != "" {
		return nil
	}
	agents := map[string]Agent{}
	for _, node := range nodes {
		if slices.ContainsFunc(sets, func(s *appsv1.DaemonSet) bool { return selects(s, node) }) {
			agents[node.Name] = Agent{Problem: Reason{Code: CodeNoAgent}}
		}
	}
	for _, pod := range d.Agents {
		// In an update a node has two.
		if agent := agentOf(pod); agent.Ready || !agents[pod.Spec.NodeName].Ready {
			agents[pod.Spec.NodeName] = agent
		}
	}
	for _, node := range nodes {
		// The kubelet of such a node reports nothing, so its pods may seem ready.
		if since, down := notReadySince(node.Status.Conditions); down && agents[node.Name] != (Agent{}) {
			agents[node.Name] = Agent{Problem: Reason{CodeNodeNotReady, since}}
		}
	}
	return agents
}

// selects reports whether pods of the DaemonSet belong on the node. A DaemonSet for all nodes
// says nothing about their GPUs.
func selects(s *appsv1.DaemonSet, node *corev1.Node) bool {
	spec := s.Spec.Template.Spec
	if len(spec.NodeSelector) == 0 && (spec.Affinity == nil || spec.Affinity.NodeAffinity == nil) {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}).Match(node)
	return err == nil && match
}

func agentOf(pod *corev1.Pod) Agent {
	return Agent{fleet.IsReady(pod), Reason{CodeAgentNotReady, known(metav1.NewTime(doctor.NotReadySince(pod)))}}
}

// notReadySince reports whether a node is not ready. A node without the condition may be.
func notReadySince(all []corev1.NodeCondition) (since *metav1.Time, down bool) {
	for _, c := range all {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return known(c.LastTransitionTime), true
		}
	}
	return nil, false
}

func known(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Nodes returns the nodes with devices of the driver, in order of their names. It includes
// nodes that should have an agent and publish nothing.
func (c *Cluster) Nodes() []fleet.Node {
	nodes := c.Fleet.Nodes()
	has := map[string]bool{}
	for _, node := range nodes {
		has[node.Name] = true
	}
	for name := range c.Agents {
		if !has[name] {
			nodes = append(nodes, fleet.Node{Name: name})
		}
	}
	slices.SortFunc(nodes, func(a, b fleet.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// GPUs returns the GPUs of the nodes, with their known use and the state of the agents. A node
// that should have GPUs and publishes none has a row without a GPU.
func (c *Cluster) GPUs(nodes []fleet.Node, used Uses) []GPU {
	rows := []GPU{}
	health := c.healths()
	for _, node := range nodes {
		rows = append(rows, c.gpusOf(node, used, health)...)
	}
	return rows
}

// gpusOf returns the rows of a node. Without its agent, or the right to list all claims, nothing
// shows that a GPU is free.
func (c *Cluster) gpusOf(node fleet.Node, used Uses, health func(string, Health) Health) []GPU {
	if len(node.GPUs) == 0 {
		return []GPU{{Node: node.Name, Mode: ModeUnknown, Health: health(node.Name, Health{State: HealthNotPublished})}}
	}
	var rows []GPU
	for _, of := range node.GPUs {
		g := GPU{
			Node: node.Name, Name: of.Name, Model: of.Model, UUID: of.UUID, Mode: of.Mode,
			Memory: of.Memory.Total, MemoryPromised: of.Memory.Promised,
			Compute: of.Compute.Total, ComputePromised: of.Compute.Promised,
			Units: unitsOf(of), Claims: of.Claims(), Health: healthOf(of), Taints: taints(of),
			Use: used.sum([]string{node.Name}, isOn(of.Name)), Foreign: used.foreignOnGPU(node.Name, of),
		}
		if !g.isPublished() {
			g.Mode, g.Compute, g.Units = ModeUnknown, 0, nil
		}
		g.Health = health(g.Node, g.Health)
		if g.Health.State == HealthUnknown && g.Mode == fleet.ModeFree {
			g.Mode = ModeUnknown
		}
		// A claim that has the GPU alone leaves nothing to others.
		g.Partial = c.Refused[doctor.Claims] != "" && g.isPublished() && g.Mode != fleet.ModeWhole
		if g.Partial && g.Mode == fleet.ModeFree {
			g.Mode = ModeNotYours
		}
		if s := of.Stranded; !g.Partial {
			g.SlicesStranded = s.Slices
			if !s.Memory.IsZero() {
				g.MemoryStranded = &s.Memory
			}
		}
		rows = append(rows, g)
	}
	return rows
}

// healths returns a function that adds the state of a node's agent to the health of its
// GPUs.
func (c *Cluster) healths() func(node string, h Health) Health {
	published := publishedAt(c.Objects.Slices, c.Driver)
	return func(node string, h Health) Health {
		agent, expected := c.Agents[node]
		if c.Agents == nil || agent.Ready {
			return h
		}
		if !expected {
			agent.Problem = Reason{Code: CodeNoAgent}
		}
		h.Reasons = append([]Reason{agent.Problem}, h.Reasons...)
		if h.State != HealthNotPublished {
			h.State, h.Published = HealthUnknown, known(published[node])
		}
		return h
	}
}

// AgentProblems returns a sentence for each node with devices whose agent is not ready: pods
// with claims do not start there. It returns none if the cluster has no agents at all.
func (c *Cluster) AgentProblems(now time.Time) []string {
	if c.NoAgents() {
		return nil
	}
	var all []string
	health := c.healths()
	for _, node := range c.Fleet.Nodes() {
		if h := health(node.Name, Health{State: HealthOK}); h.State == HealthUnknown {
			words, since := h.Reasons[0].words(now)
			all = append(all, fmt.Sprintf("node %s: %s%s: pods with claims do not start there", node.Name, words, since))
		}
	}
	return all
}
