// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// finds fails unless the cluster has exactly the urgent findings. "code | object | found" may end
// early.
func finds(t *testing.T, c *doctor.Cluster, want ...string) []doctor.Finding {
	t.Helper()
	findings := doctor.Examine(c)
	complete(t, findings)
	var got []string
	for _, f := range findings {
		if f.State != doctor.OK {
			got = append(got, strings.Join([]string{string(f.State), f.Code, f.Object, f.Found}, " | "))
		}
	}
	if !slices.EqualFunc(want, got, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
		t.Errorf("want\n%s\nfound\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	return findings
}

// ago returns a time of a cluster in the past.
func ago(c *doctor.Cluster, d time.Duration) metav1.Time { return metav1.NewTime(c.Now.Add(-d)) }

// updating returns a cluster whose agents' DaemonSet has updated one of two pods.
func updating(w *fleettest.World, idle time.Duration) *doctor.Cluster {
	c := healthy(w)
	set := c.DaemonSets[0]
	set.Namespace, set.UID, set.CreationTimestamp = "gpus", "set", ago(c, 48*time.Hour)
	set.Generation, set.Status = 2, appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 1}
	for _, pod := range c.Agents {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		pod.CreationTimestamp = ago(c, 24*time.Hour)
		pod.Status.Conditions[0].LastTransitionTime = ago(c, 23*time.Hour)
	}
	c.Agents[0].CreationTimestamp = ago(c, idle)
	return c
}

func TestUpdatesThatAreStuck(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		idle  time.Duration
		given func(*doctor.Cluster, *appsv1.DaemonSet)
		want  []string
	}{
		"none":                     {time.Hour, func(_ *doctor.Cluster, set *appsv1.DaemonSet) { set.Status.UpdatedNumberScheduled = 2 }, nil},
		"an update that has begun": {time.Minute, func(*doctor.Cluster, *appsv1.DaemonSet) {}, nil},
		"a pod that is not ready": {time.Hour, func(c *doctor.Cluster, _ *appsv1.DaemonSet) {
			c.Agents[0].Status.Conditions[0].Status, c.Agents[0].Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, ago(c, time.Hour)
		}, []string{
			"problem | agent-not-ready | node a | pod agent-a is not ready for 60m: it does not pass its readiness check",
			"problem | rollout-stuck | daemonset gpus/agent | 1 of 2 pods are of the newest release, and none has been created or become ready for 60m; not ready: agent-a",
		}},
		"an image that does not exist": {time.Minute, func(c *doctor.Cluster, _ *appsv1.DaemonSet) {
			c.Agents[0].Status.Conditions[0].Status = corev1.ConditionFalse
			c.Agents[0].Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "no-such:1"}}}}
			c.Agents[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		}, []string{
			"problem | agent-not-ready | node a | pod agent-a is not ready for 23h: ErrImageNeverPull: no-such:1",
			"problem | rollout-stuck | daemonset gpus/agent | 1 of 2 pods are of the newest release, and pod agent-a cannot start: ErrImageNeverPull: no-such:1",
		}},
		"no pod that is not ready": {time.Hour, func(*doctor.Cluster, *appsv1.DaemonSet) {}, []string{
			"problem | rollout-stuck | daemonset gpus/agent | 1 of 2 pods are of the newest release, and none has been created or become ready for 60m",
		}},
		"pods that wait for their deletion": {time.Hour, func(_ *doctor.Cluster, set *appsv1.DaemonSet) {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}, []string{"warning | rollout-on-delete | daemonset gpus/agent | 1 of 2 pods"}},
		"no controller": {time.Hour, func(_ *doctor.Cluster, set *appsv1.DaemonSet) { set.Generation = 3 }, []string{
			"problem | rollout-stuck | daemonset gpus/agent | the kube-controller-manager has seen generation 2 of 3",
		}},
		"a pod without a node": {time.Hour, func(c *doctor.Cluster, set *appsv1.DaemonSet) {
			set.Status.UpdatedNumberScheduled = 2
			pod := driverPod("agent", "", false)
			pod.Name, pod.CreationTimestamp = "agent-c", ago(c, 20*time.Minute)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: 1 Insufficient cpu."}}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"c"}}}}},
			}}}
			c.Pending = append(c.Pending, pod)
		}, []string{"problem | pod-not-scheduled | node c | pod agent-c is not scheduled for 20m: 0/3 nodes are available: 1 Insufficient cpu."}},
		"a node without a pod": {time.Hour, func(_ *doctor.Cluster, set *appsv1.DaemonSet) { set.Status.DesiredNumberScheduled = 3 }, []string{
			"problem | pods-not-created | daemonset gpus/agent | pods of it are missing on 1 of 3 selected nodes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := updating(w, tc.idle)
			tc.given(c, c.DaemonSets[0])
			finds(t, c, tc.want...)
		})
	}
}

func TestNodesInTrouble(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share", "node-2=t4 share", "node-3=t4 share")
	for name, tc := range map[string]struct {
		given func(*doctor.Cluster)
		want  []string
	}{
		"a node that does not report": {func(c *doctor.Cluster) {
			c.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: ago(c, 40*time.Minute)}}
		}, []string{"problem | node-not-ready | node b | it is not ready for 40m: NodeStatusUnknown"}},
		"a node with fewer GPUs": {func(c *doctor.Cluster) {
			c.Slices[1].Spec.Devices = c.Slices[1].Spec.Devices[:3]
		}, []string{"warning | gpus-missing | node b | it publishes 3 GPUs (Tesla T4); 3 nodes with this product publish 4"}},
		"a smaller machine": {func(c *doctor.Cluster) {
			c.Slices[1].Spec.Devices = c.Slices[1].Spec.Devices[:3]
			c.Nodes[1].Labels = map[string]string{corev1.LabelInstanceTypeStable: "small"}
		}, nil},
		"another release of the NVIDIA driver": {func(c *doctor.Cluster) {
			for i := range c.Slices[1].Spec.Devices {
				c.Slices[1].Spec.Devices[i].Attributes["driverVersion"] = resourceapi.DeviceAttribute{VersionValue: ptr.To("575.1.0")}
			}
		}, []string{"warning | driver-releases-differ | product Tesla T4 | 570.124.6 on a, node-2, node-3; 575.1.0 on b"}},
		"ECC that is off": {func(c *doctor.Cluster) { c.Facts["b"].Value.GPUs[0].ECC = fact("off") }, []string{
			"warning | ecc-off | node b | error correction (ECC) is off (gpu-1b-00)",
		}},
		"CRI-O": {func(c *doctor.Cluster) { c.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.35.2" }, nil},
		"a CRI-O that replaces the folder of MPS": {func(c *doctor.Cluster) {
			c.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.2"
		}, []string{"warning | shm-may-be-replaced | node b | CRI-O 1.34.2"}},
		"the same without MPS": {func(c *doctor.Cluster) {
			c.Nodes[2].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.2"
		}, nil},
		"a very old containerd": {func(c *doctor.Cluster) {
			c.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.6.9"
		}, []string{"problem | runtime-without-cdi | node b | containerd 1.6.9"}},
		"Docker": {func(c *doctor.Cluster) { c.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "docker://28.0.1" }, []string{
			"problem | runtime-without-cdi | node b | docker 28.0.1",
		}},
		"a runtime that is not known": {func(c *doctor.Cluster) { c.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "boxes://1.0" }, []string{
			"unknown | runtime-unknown | node b | boxes 1.0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			for _, node := range []string{"node-2", "node-3"} {
				c.Agents = append(c.Agents, driverPod("agent", node, true, "--mps-supervisor="))
			}
			tc.given(c)
			finds(t, c, tc.want...)
		})
	}
}

func TestLabelsThatAreNotFollowed(t *testing.T) {
	w := newWorld(t)
	refused := errors.New("no right")
	for name, tc := range map[string]struct {
		label, value string
		answer       *doctor.Answer[agentv1.Node]
		given        func(*doctor.Cluster)
		want         []string
	}{
		"an offer that the agent follows": {"gpu.nvidia.com/offer", "share", nil, nil, nil},
		"an offer that is none, and no facts": {"gpu.nvidia.com/offer", "share.mgi", &doctor.Answer[agentv1.Node]{Err: refused}, nil, []string{
			`problem | config-not-followed | node a | label gpu.nvidia.com/offer=share.mgi: offer "share,mgi": invalid: "mgi" is unknown; known are: share, mig, timeslice, seat, monitor`,
			"unknown | agent-does-not-answer | node a",
		}},
		"an offer with a word twice, and no facts": {"gpu.nvidia.com/offer", "mig_mig", &doctor.Answer[agentv1.Node]{Err: refused}, nil, []string{
			`problem | config-not-followed | node a | label gpu.nvidia.com/offer=mig_mig: offer "mig,mig": invalid: "mig" is there twice`, "unknown | agent-does-not-answer | node a",
		}},
		"a configuration, and no facts": {"gpu.nvidia.com/config", "training", &doctor.Answer[agentv1.Node]{Err: refused}, nil, []string{
			"unknown | agent-does-not-answer | node a", "unknown | config-not-checked | node a | it has the label gpu.nvidia.com/config=training; no right",
		}},
		"no right to query agents": {"gpu.nvidia.com/config", "training", &doctor.Answer[agentv1.Node]{}, func(c *doctor.Cluster) {
			c.Unread[doctor.AgentFacts], c.Facts = "You have no right to create tokens.", nil
		}, []string{
			"unknown | facts-not-readable | cluster", "unknown | config-not-checked | node a | it has the label gpu.nvidia.com/config=training; You have no right to create tokens.",
		}},
		"a misspelt label":             {"gpu.nvidia.com/ofer", "share", nil, nil, []string{"warning | label-unknown | node a | it has the label gpu.nvidia.com/ofer, which the driver does not know"}},
		"a misspelt prefix":            {"gpu.nvida.com/offer", "share", nil, nil, []string{"warning | label-unknown | node a | it has the label gpu.nvida.com/offer"}},
		"a label of feature discovery": {"nvidia.com/gpu.present", "true", nil, nil, nil},
		"a label by which the chart selects": {"gpu.nvidia.com/here", "true", nil, func(c *doctor.Cluster) {
			c.DaemonSets[0].Spec.Template.Spec.NodeSelector = map[string]string{"gpu.nvidia.com/here": "true"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			c.Nodes[0].Labels = map[string]string{tc.label: tc.value}
			if tc.answer != nil {
				c.Facts["a"] = *tc.answer
			}
			if tc.given != nil {
				tc.given(c)
			}
			finds(t, c, tc.want...)
		})
	}
	c := healthy(w)
	c.Nodes = append(c.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"gpu.nvidia.com/offer": "mig"}}})
	finds(t, c, "warning | label-without-agent | node c | it has the label gpu.nvidia.com/offer=mig and no agent")
}

// The agent of a simulated node is not privileged.
func TestFilesThatASimulatedNodeLacksAreLeftOut(t *testing.T) {
	w := newWorld(t)
	for _, simulated := range []bool{false, true} {
		c := healthy(w)
		facts := c.Facts["a"].Value
		facts.Simulated = simulated
		facts.CPUManager = agentv1.Fact[string]{Source: "/var/lib/kubelet/cpu_manager_state", Unknown: "permission denied"}
		facts.GPUs[0].Clocks = agentv1.Fact[agentv1.Clocks]{Source: "NVML", Unknown: "timed out"}
		want := []string{"unknown | file-not-readable | node a", "unknown | fact-unknown | node a"}
		if simulated {
			want = want[1:]
		}
		finds(t, c, want...)
	}
}

// reports returns a function that adds a condition of the agent to the first claim.
func reports(condition string, status metav1.ConditionStatus) func(*doctor.Cluster) {
	return func(c *doctor.Cluster) {
		c.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-18-00", Conditions: []metav1.Condition{{Type: condition, Status: status, Message: "the agent's sentence"}},
		}}
	}
}

// disturbed adds a condition of a share, of a pod whose container runs for two hours.
func disturbed(kind, reason string, since time.Duration) func(*doctor.Cluster) {
	return func(c *doctor.Cluster) {
		reports(kind, metav1.ConditionTrue)(c)
		condition := &c.Claims[0].Status.Devices[0].Conditions[0]
		condition.Reason, condition.LastTransitionTime = reason, ago(c, since)
		c.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(c, 2*time.Hour)}}}}
	}
}

func TestClaimsThatNothingReleases(t *testing.T) {
	w := newWorld(t)
	finalizer := []string{"resource.kubernetes.io/delete-protection"}
	for name, tc := range map[string]struct {
		given func(*doctor.Cluster)
		want  []string
	}{
		"a claim that is deleted while its pod runs": {func(c *doctor.Cluster) {
			c.Claims[0].DeletionTimestamp, c.Claims[0].Finalizers = ptr.To(ago(c, time.Hour)), finalizer
		}, []string{"warning | claim-deleted-in-use | claim default/train | "}},
		"a claim that is deleted after its pod has ended": {func(c *doctor.Cluster) {
			c.Claims[0].DeletionTimestamp, c.Claims[0].Finalizers = ptr.To(ago(c, time.Hour)), finalizer
			c.Pods[0].Status.Phase = corev1.PodSucceeded
		}, []string{"problem | claim-not-deleted | claim default/train | "}},
		"a claim that has just lost its pod": {func(c *doctor.Cluster) {
			c.Claims[0].Status.ReservedFor, c.Claims[0].Status.Allocation.AllocationTimestamp = nil, ptr.To(ago(c, time.Minute))
		}, nil},
		"a node that is gone": {func(c *doctor.Cluster) {
			c.Nodes, c.Agents, c.Supervisors, c.Slices = c.Nodes[1:], c.Agents[1:], c.Supervisors[1:], c.Slices[1:]
		}, []string{"problem | claim-of-missing-node | node a | it does not exist, and 1 claim has devices of it: default/train"}},
		"a node without an agent": {func(c *doctor.Cluster) {
			c.Agents, c.Supervisors, c.Slices = c.Agents[1:], c.Supervisors[1:], c.Slices[1:]
		}, []string{"problem | claims-without-agent | node a | it has no agent, and 1 claim has devices of it: default/train"}},
		"nodes that cannot be read": {func(c *doctor.Cluster) {
			c.Unread[doctor.Nodes], c.Nodes = "You have no right to list nodes.", nil
		}, []string{"unknown | list-not-readable", "unknown | list-not-readable", "unknown | list-not-readable"}},
		"a pod that only its finalizers keep": {func(c *doctor.Cluster) {
			c.Pods[0].Status.Phase, c.Pods[0].DeletionTimestamp, c.Pods[0].Finalizers = corev1.PodFailed, ptr.To(ago(c, time.Hour)), []string{"example.com/archive"}
		}, []string{"warning | pod-not-terminated | claim default/train | its pod train is being deleted and had time to end until "}},
		"a container without its memory limit": {reports(v1alpha1.ConditionMemoryUnlimited, metav1.ConditionTrue), []string{
			"warning | memory-unlimited | claim default/train | gpu-18-00: the agent's sentence",
		}},
		"limits that the agent cannot check": {reports(v1alpha1.ConditionMemoryUnlimited, metav1.ConditionUnknown), []string{
			"unknown | memory-limit-not-checked | claim default/train | gpu-18-00: the agent's sentence",
		}},
		"limits that the agent of a simulated node cannot check": {func(c *doctor.Cluster) {
			reports(v1alpha1.ConditionMemoryUnlimited, metav1.ConditionUnknown)(c)
			c.Facts["a"].Value.Simulated = true
		}, nil},
		"a share that another user's programs keep waiting": {disturbed(v1alpha1.ConditionShareWaits, v1alpha1.ReasonOtherUser, time.Hour), []string{
			"warning | mps-other-user | claim default/train | gpu-18-00, ",
		}},
		"a program that ran when its MPS daemon ended": {disturbed(v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, time.Hour), []string{
			"warning | mps-interrupted | claim default/train | gpu-18-00, ",
		}},
		"a program that was started again since": {disturbed(v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, 3*time.Hour), nil},
		"another driver that the agent has found": {reports(v1alpha1.ConditionOtherDriver, metav1.ConditionTrue), []string{
			"problem | driver-of-same-name | node a | another driver of the name gpu.nvidia.com serves the node too",
		}},
		"a claim that its user must change": {func(c *doctor.Cluster) {
			c.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-18-00", Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "strategy: invalid"},
			}}}
		}, []string{"warning | claim-invalid | claim default/train | gpu-18-00 is not prepared: Invalid: strategy: invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			tc.given(c)
			finds(t, c, tc.want...)
		})
	}
}

// sharing returns a cluster whose second claim is a share, prepared with a strategy.
func sharing(t *testing.T, w *fleettest.World, strategy v1alpha1.Strategy) *doctor.Cluster {
	t.Helper()
	c := healthy(w)
	fleettest.Report(t, c.Claims[1], &v1alpha1.ShareData{Strategy: strategy})
	return c
}

func TestContainersThatGetSomethingElse(t *testing.T) {
	w := newWorld(t)
	w.Hold("b", "infer", "memory=4Gi")
	// twice adds a second claim, which is prepared in the same way, to the container.
	twice := func(c *doctor.Cluster) {
		other := c.Claims[1].DeepCopy()
		other.Name, other.UID = "other", "other"
		c.Claims = append(c.Claims, other)
		pod := c.Pods[1]
		other.Status.ReservedFor[0].UID = pod.UID
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "second", ResourceClaimName: ptr.To("other")})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "second"})
	}
	for name, tc := range map[string]struct {
		strategy v1alpha1.Strategy
		given    func(*doctor.Cluster)
		want     []string
	}{
		"nothing else": {v1alpha1.StrategyMPS, func(*doctor.Cluster) {}, nil},
		"a claim that no container names": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Pods[1].Spec.Containers[0].Resources.Claims = nil
		}, []string{"warning | claim-not-named | pod default/infer | no container names its claim gpu"}},
		"a claim that only an init container names": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Pods[1].Spec.InitContainers, c.Pods[1].Spec.Containers = c.Pods[1].Spec.Containers, []corev1.Container{{Name: "next"}}
		}, nil},
		"a claim that the container of a pod without devices would not get": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Claims = append(c.Claims, fleettest.Claim("waits", ""))
			pod := fleettest.Pod("waits")
			pod.Spec.Containers[0].Resources.Claims = nil
			c.Pods = append(c.Pods, pod)
		}, []string{"warning | claim-not-named | pod default/waits"}},
		"the same for another driver": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Claims = append(c.Claims, fleettest.Claim("waits", "class=nic.example.com"))
			pod := fleettest.Pod("waits")
			pod.Spec.Containers[0].Resources.Claims = nil
			c.Pods = append(c.Pods, pod)
		}, nil},
		"two shares of MPS": {v1alpha1.StrategyMPS, twice, []string{
			"warning | two-shares-in-container | pod default/infer | its container main names 2 shares: gpu (gpu-18-00), second (gpu-18-00)",
		}},
		"two plain shares": {v1alpha1.StrategyPlain, twice, nil},
		"a share that is rounded up": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Claims[1].Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("4095Mi")
		}, []string{"warning | share-rounded-up | claim default/infer | request gpu has 4095Mi of memory, and holds 4Gi"}},
		"a share that is rounded to whole Mi": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Claims[1].Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("4294967290")
		}, nil},
		"NVIDIA's RuntimeClass without a claim": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Pods = append(c.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "free", UID: types.UID("free")}, Spec: corev1.PodSpec{NodeName: "b", RuntimeClassName: ptr.To("nvidia")}})
		}, []string{"warning | pod-without-claim | pod x/free | it has the RuntimeClass nvidia and no claim, on node b"}},
		"NVIDIA's RuntimeClass with a claim": {v1alpha1.StrategyMPS, func(c *doctor.Cluster) {
			c.Pods[1].Spec.NodeName, c.Pods[1].Spec.RuntimeClassName = "b", ptr.To("nvidia")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := sharing(t, w, tc.strategy)
			tc.given(c)
			finds(t, c, tc.want...)
		})
	}
}
