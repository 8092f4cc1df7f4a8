// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func now() time.Time { return time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) }

// ago returns the time that long before now.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(now().Add(-d)) }

// agentPod returns a pod of an agent with the condition Ready since that long.
func agentPod(node string, ready corev1.ConditionStatus, since time.Duration) *corev1.Pod {
	return &corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: ago(since)}}},
	}
}

// agentSet returns the DaemonSet of agents on nodes with the label gpu.
func agentSet() *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{doctor.ComponentLabel: doctor.AgentComponent}}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "true"}
	return set
}

func TestTheHealthOfATaintedGPUHasWordsAndAges(t *testing.T) {
	old, since := ago(3*time.Hour), ago(12*time.Minute)
	for want, taints := range map[string][]resourceapi.DeviceTaint{
		"ok":          {{Key: "example.com/seen", Effect: resourceapi.DeviceTaintEffectNone}},
		"xid-79, 12m": {{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79", Effect: "NoSchedule", TimeAdded: &since}},
		"xid-79, 3h": {
			{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79", Effect: "NoSchedule", TimeAdded: &since},
			{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79", Effect: "NoExecute", TimeAdded: &old},
		},
		"foreign-process, 12m; example.com/repair": {
			{Key: "gpu.nvidia.com/in-use", Value: "foreign-process", Effect: "NoSchedule", TimeAdded: &since}, {Key: "example.com/repair", Effect: "NoSchedule"},
		},
	} {
		w := fleettest.New(t, "a=t4")
		w.Slices[0].Spec.Devices[0].Taints = taints
		c := cluster(w)
		if got := c.GPUs(c.Nodes(), nil)[0].Health.Text(now()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Nothing is known about a GPU whose agent does not run, and nothing is made up.
func TestTheHealthOfGPUsWithoutAnAgent(t *testing.T) {
	w := fleettest.New(t, "absent=t4 share", "down=t4 share", "failed=t4 share", "gone=t4 share", "ready=t4 share")
	w.Hold("gone", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	w.Slices = slices.DeleteFunc(w.Slices, func(s *resourceapi.ResourceSlice) bool { return *s.Spec.NodeName == "gone" })
	w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	published, written := ago(72*time.Hour), ago(48*time.Hour)
	for _, s := range w.Slices {
		s.CreationTimestamp, s.ManagedFields = published, []metav1.ManagedFieldsEntry{{Time: &written}}
	}
	for _, node := range w.Nodes {
		if node.Name != "other" {
			node.Labels = map[string]string{"gpu": "true"}
		}
		if node.Name == "down" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: ago(9 * time.Minute)}}
		}
	}
	d := &doctor.Cluster{DaemonSets: []*appsv1.DaemonSet{agentSet()}, Agents: []*corev1.Pod{
		agentPod("ready", corev1.ConditionFalse, time.Hour), agentPod("ready", corev1.ConditionTrue, time.Hour), agentPod("ready", corev1.ConditionFalse, time.Hour),
		agentPod("failed", corev1.ConditionFalse, 12*time.Minute), agentPod("down", corev1.ConditionTrue, time.Hour),
		agentPod("gone", corev1.ConditionFalse, 20*time.Minute),
	}}
	c := cluster(w)
	c.Agents = AgentsOf(d, w.Nodes)
	got := map[string]string{}
	for _, g := range c.GPUs(c.Nodes(), nil) {
		got[strings.Join([]string{g.Node, OrDash(g.Name), string(g.Mode), g.MemoryText(), g.ComputeText(), g.Health.Text(now())}, " ")] = ""
	}
	for node, health := range map[string]string{
		"absent": "unknown: no agent; published 2d ago", "down": "unknown: node not ready since 9m ago; published 2d ago",
		"failed": "unknown: agent not ready since 12m ago; published 2d ago", "ready": "ok",
	} {
		for _, name := range []string{"gpu-18-00", "gpu-3b-00", "gpu-86-00", "gpu-af-00"} {
			mode := ModeUnknown // nothing shows that it is free
			if node == "ready" {
				mode = fleet.ModeFree
			}
			line := strings.Join([]string{node, name, string(mode), "0.0Gi/14.6Gi 0%", health}, " ")
			if _, found := got[line]; !found {
				t.Errorf("no %q", line)
			}
			delete(got, line)
		}
	}
	want := []string{"gone gpu-18-00 unknown - - not published: agent not ready since 20m ago", "new - unknown - - not published: no agent"}
	require.Same(t, "further GPUs", want, slices.Sorted(maps.Keys(got)))
	if got := c.Holders(c.Nodes(), "", nil)[0].Health.Text(now()); got != "not published: agent not ready since 20m ago" {
		t.Errorf("the holder: %q", got)
	}
	problems := []string{
		"node absent: no agent: pods with claims do not start there", "node down: node not ready since 9m ago: pods with claims do not start there",
		"node failed: agent not ready since 12m ago: pods with claims do not start there", "node gone: agent not ready since 20m ago: pods with claims do not start there",
	}
	require.Same(t, "agents", problems, c.AgentProblems(now()))
}

// Without the right to list the driver's pods, the state of the agents is not known.
func TestAgentsThatAreNotKnown(t *testing.T) {
	w := fleettest.New(t, "a=t4")
	c := cluster(w)
	c.Agents = AgentsOf(&doctor.Cluster{DaemonSets: []*appsv1.DaemonSet{agentSet()}, Unread: map[doctor.List]string{doctor.DriverPods: "no right"}}, w.Nodes)
	if got := c.GPUs(c.Nodes(), nil); c.Agents != nil || got[0].Health.State != HealthOK {
		t.Errorf("no right to pods: got %+v", c.Agents)
	}
	c = cluster(w)
	c.Agents = AgentsOf(&doctor.Cluster{}, w.Nodes)
	if got := c.GPUs(c.Nodes(), nil); !c.NoAgents() || !strings.HasPrefix(got[0].Health.Text(now()), "unknown: no agent") || len(c.AgentProblems(now())) > 0 {
		t.Errorf("no agent in the cluster: got %+v", got[0])
	}
	// Agents on all nodes do not show which nodes have GPUs.
	everywhere := agentSet()
	everywhere.Spec.Template.Spec.NodeSelector = nil
	if got := AgentsOf(&doctor.Cluster{DaemonSets: []*appsv1.DaemonSet{everywhere}}, w.Nodes); got == nil || len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}
