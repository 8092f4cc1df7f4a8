// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// driverPod returns a pod of the driver on a node.
func driverPod(component, node string, ready bool, args ...string) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: component + "-" + node},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: component + ":v1", Args: args}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

func selecting(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// template returns a claim template whose request has a selector.
func template(expression string) *resourceapi.ResourceClaimTemplate {
	claim := fleettest.Claim("mine", "cel="+expression)
	return &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec}}
}

func nvidiaDriver(node, container string) *corev1.Pod {
	pod := driverPod("nvidia", node, true)
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = container, "registry.example.com/nvidia/k8s-dra-driver-gpu:v25.12.0"
	return pod
}

func policy(name string, actions ...admissionv1.ValidationAction) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: actions}}
}

// newWorld returns the objects of two nodes and a claim.
func newWorld(t *testing.T) *fleettest.World {
	t.Helper()
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	w.Hold("a", "train", "")
	return w
}

func copies[T interface{ DeepCopy() T }](all []T) []T {
	var copied []T
	for _, o := range all {
		copied = append(copied, o.DeepCopy())
	}
	return copied
}

// healthy returns a cluster in which every check is ok.
func healthy(w *fleettest.World) *doctor.Cluster {
	c := &doctor.Cluster{
		Driver: "gpu.nvidia.com", Now: time.Now(), ServerVersion: "v1.37.1",
		Resources: []string{"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
		Unread:    map[doctor.List]string{}, Facts: map[string]doctor.Answer[agentv1.Node]{},
	}
	c.Nodes, c.Pods, c.Claims, c.Classes, c.Slices = copies(w.Nodes), copies(w.Pods), copies(w.Claims), copies(w.Classes), copies(w.Slices)
	for _, node := range c.Nodes {
		node.Status.Capacity = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("16Mi")}
	}
	for _, claim := range c.Claims {
		claim.CreationTimestamp = metav1.NewTime(c.Now.Add(-time.Hour))
	}
	for _, node := range []string{"a", "b"} {
		c.Agents = append(c.Agents, driverPod("agent", node, true, "--driver-name=gpu.nvidia.com", "--mps-supervisor=/run/mps.sock"))
		c.Supervisors = append(c.Supervisors, driverPod("supervisor", node, true))
		facts := healthyNode()
		c.Facts[node] = doctor.Answer[agentv1.Node]{Value: &facts}
	}
	c.DaemonSets = []*appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: map[string]string{doctor.ComponentLabel: doctor.AgentComponent}}}}
	for _, name := range []string{"x-own-slices", "x-own-claims", "x-own-events"} {
		p, b := policy(name, admissionv1.Deny)
		c.Policies, c.Bindings = append(c.Policies, p), append(c.Bindings, b)
	}
	return c
}

func fact[T any](value T) agentv1.Fact[T] { return agentv1.Fact[T]{Value: value, Source: "/file"} }

func healthyNode() agentv1.Node {
	n := agentv1.Node{
		DriverVersion: fact("615.10.01"), CUDAVersion: fact("13.2"), OpenModules: fact(true),
		Controllers: fact([]string{"cpu", "dmem"}), HugePages: fact(map[string]uint64{"2048kB": 8}), TransparentHugePages: fact("madvise"),
		Governors: fact([]string{"performance"}), Memlock: fact("unlimited"), IOMMU: fact(true), RDMADevices: fact([]string{"mlx5_0"}),
		NUMANodes: fact(2), CPUManager: fact("static"), FabricManager: fact(true),
	}
	for _, address := range []string{"0000:1b:00.0", "0000:43:00.0"} {
		n.GPUs = append(n.GPUs, agentv1.GPU{
			Address: address, Persistence: fact("on"), NVSwitch: fact(true), Clocks: fact(agentv1.Clocks{Reasons: []string{"gpu-idle"}}),
			LinkWidth: fact(16), MaxLinkWidth: fact(16), IOMMUType: fact("identity"),
		})
	}
	return n
}

// urgent returns the findings that are not ok, one line each.
func urgent(findings []doctor.Finding) []string {
	var lines []string
	for _, f := range findings {
		if f.State != doctor.OK {
			lines = append(lines, strings.Join([]string{string(f.State), f.Check, f.Object, f.Found}, " | "))
		}
	}
	return lines
}

// complete fails if a finding lacks a part that the user needs.
func complete(t *testing.T, findings []doctor.Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Check == "" || f.Object == "" || f.Found == "" || f.State != doctor.OK && (f.Meaning == "" || f.Remedy == "") {
			t.Errorf("incomplete: %+v", f)
		}
		if code := codeOf(f); f.State != doctor.OK && (code.Name == "" || f.Read == "" || code.Check != "" && code.Check != f.Check) {
			t.Errorf("the table has no code of the check for %+v", f)
		}
	}
}

func TestNothingIsFoundInAHealthyCluster(t *testing.T) {
	findings := doctor.Examine(healthy(newWorld(t)))
	complete(t, findings)
	if got := urgent(findings); len(got) > 0 {
		t.Errorf("found:\n%s", strings.Join(got, "\n"))
	}
	if len(findings) < 40 {
		t.Errorf("%d findings only", len(findings))
	}
}

func TestEveryCheckOfTheCluster(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		given func(*doctor.Cluster)
		want  string
	}{
		"an old server":             {func(c *doctor.Cluster) { c.ServerVersion = "v1.33.4" }, "problem | server | cluster | Kubernetes v1.33.4"},
		"a server without shares":   {func(c *doctor.Cluster) { c.ServerVersion = "v1.35.4" }, "warning | server | cluster | Kubernetes v1.35.4"},
		"a server without counters": {func(c *doctor.Cluster) { c.ServerVersion = "v1.36.1" }, "warning | server | cluster | Kubernetes v1.36.1"},
		"an odd version":            {func(c *doctor.Cluster) { c.ServerVersion = "next" }, `unknown | server | cluster | the API server reports the version "next"`},
		"no DRA":                    {func(c *doctor.Cluster) { c.Resources = nil }, "problem | resources | cluster | resource.k8s.io/v1 lacks deviceclasses, resourceclaims, resourceclaimtemplates, resourceslices"},
		"no taint rules":            {func(c *doctor.Cluster) { c.Resources = slices.Delete(c.Resources, 1, 2) }, "warning | resources | cluster | the API server does not serve devicetaintrules of resource.k8s.io/v1"},
		"fields that the server dropped": {func(c *doctor.Cluster) {
			for _, slice := range c.Slices {
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].AllowMultipleAllocations = nil
				}
			}
		}, "warning | shares | cluster | none of 8 published devices can be shared"},
		"no classes": {func(c *doctor.Cluster) { c.Classes = nil }, "problem | classes | cluster | no DeviceClass selects devices of the driver gpu.nvidia.com"},
		"a device plugin's resource": {func(c *doctor.Cluster) {
			c.Nodes[1].Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
		}, "warning | extended-resources | class gpu.nvidia.com | a device plugin serves nvidia.com/gpu on b too"},
		"two classes for a resource": {func(c *doctor.Cluster) {
			other := c.Classes[slices.IndexFunc(c.Classes, func(class *resourceapi.DeviceClass) bool { return class.Name == "gpu.nvidia.com" })].DeepCopy()
			other.Name = "mine"
			c.Classes = append(c.Classes, other)
		}, "problem | extended-resources | class gpu.nvidia.com | the classes gpu.nvidia.com, mine all serve nvidia.com/gpu"},
		"another's class for a resource": {func(c *doctor.Cluster) {
			resource := "nvidia.com/gpu"
			c.Classes = slices.Insert(c.Classes, 0, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "a.example.com"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &resource}})
		}, "problem | extended-resources | class gpu.nvidia.com | the classes a.example.com, gpu.nvidia.com all serve nvidia.com/gpu"},
		"a class that reads what devices lack": {func(c *doctor.Cluster) {
			c.Classes = append(c.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: resourceapi.DeviceClassSpec{Selectors: selecting("device.attributes['gpu.nvidia.com'].eccEnabled")}})
		}, "problem | selectors | class mine | it reads the attribute gpu.nvidia.com/eccEnabled: 8 devices cannot answer, such as gpu-18-00 of pool a"},
		"a template that reads what one node lacks": {func(c *doctor.Cluster) {
			for i := range c.Slices[0].Spec.Devices {
				delete(c.Slices[0].Spec.Devices[i].Attributes, "driverVersion")
			}
			c.Templates = append(c.Templates, template("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('1.0.0'))"))
		}, "warning | selectors | template team/mine | it reads the attribute gpu.nvidia.com/driverVersion: 4 devices cannot answer, such as gpu-18-00 of pool a"},
		"a template that reads a name that is none": {func(c *doctor.Cluster) {
			c.Templates = append(c.Templates, template("device.attributes['gpu.nvidia.com'].?colour.orValue('') == 'red'"))
		}, "warning | selectors | template team/mine | it reads the attribute gpu.nvidia.com/colour, which no device has"},
		"a waiting claim with such a constraint": {func(c *doctor.Cluster) {
			c.Claims = append(c.Claims, fleettest.Claim("waits", "count=2 match=island"))
		}, "warning | selectors | claim default/waits | its constraint needs the attribute gpu.nvidia.com/island, which no device has"},
		"a claim that has devices": {func(c *doctor.Cluster) {
			c.Claims[0].Spec.Devices.Requests[0].Exactly.Selectors = selecting("device.attributes['gpu.nvidia.com'].colour == 'red'")
		}, ""},
		"more selectors than are evaluated": {func(c *doctor.Cluster) {
			for i := range 2000 {
				c.Templates = append(c.Templates, template(fmt.Sprintf("device.driver != 'd%d'", i)))
			}
		}, "unknown | selectors | cluster | there are more selectors than this check evaluates"},
		"no policies":                {func(c *doctor.Cluster) { c.Policies = c.Policies[:1] }, "problem | policies | cluster | no ValidatingAdmissionPolicy of the driver ends with -own-claims"},
		"no policy for events":       {func(c *doctor.Cluster) { c.Policies = c.Policies[:2] }, "problem | policies | cluster | no ValidatingAdmissionPolicy of the driver ends with -own-events"},
		"a policy without a binding": {func(c *doctor.Cluster) { c.Bindings = c.Bindings[:1] }, "problem | policies | policy x-own-claims | it has no ValidatingAdmissionPolicyBinding"},
		"a policy that only warns": {func(c *doctor.Cluster) {
			c.Bindings[0].Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}, "warning | policies | policy x-own-slices | its binding has the actions [Warn]"},
		"an agent that is not ready": {func(c *doctor.Cluster) {
			c.Agents[0] = driverPod("agent", "a", false, c.Agents[0].Spec.Containers[0].Args...)
			c.Agents[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
		}, "problem | agents | node a | pod agent-a is not ready: ImagePullBackOff: no such image"},
		"an update, in which a node has two": {func(c *doctor.Cluster) {
			c.Agents = append(c.Agents, driverPod("agent", "a", false, c.Agents[0].Spec.Containers[0].Args...))
		}, ""},
		"no agents":     {func(c *doctor.Cluster) { c.Agents, c.Slices = nil, nil }, "problem | agents | cluster | the DaemonSet agent selects no node"},
		"no supervisor": {func(c *doctor.Cluster) { c.Supervisors = c.Supervisors[:1] }, "problem | supervisors | node b | the agent expects an MPS supervisor, and the node has none"},
		"no MPS": {func(c *doctor.Cluster) {
			c.Supervisors = nil
			for _, agent := range c.Agents {
				agent.Spec.Containers[0].Args = []string{"--mps-supervisor="}
			}
		}, ""},
		"slices without an agent": {func(c *doctor.Cluster) { c.Agents = c.Agents[:1] }, "problem | slices | node b | it publishes devices and has no agent"},
		"an agent without slices": {func(c *doctor.Cluster) {
			c.Slices = slices.DeleteFunc(c.Slices, func(s *resourceapi.ResourceSlice) bool { return *s.Spec.NodeName == "b" })
		}, "problem | slices | node b | its agent is ready, and it publishes no devices"},
		"slices of a node that is gone": {func(c *doctor.Cluster) { c.Nodes = c.Nodes[:1] }, "problem | slices | node b | it publishes devices and does not exist"},
		"half a pool":                   {func(c *doctor.Cluster) { c.Slices[0].Spec.Pool.ResourceSliceCount++ }, "problem | pools | node a | some slices of its pool are missing"},
		"a GPU that failed": {func(c *doctor.Cluster) {
			c.Slices[0].Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}, "problem | health | node a | gpu-18-00 has the taint gpu.nvidia.com/unhealthy=xid-79:NoSchedule"},
		"a claim that no pod uses": {func(c *doctor.Cluster) { c.Claims[0].Status.ReservedFor = nil }, "warning | claims | claim default/train | no pod uses it, and it got its devices 60m ago"},
		"a new claim that no pod uses": {func(c *doctor.Cluster) {
			c.Claims[0].Status.ReservedFor, c.Claims[0].CreationTimestamp = nil, metav1.NewTime(c.Now)
		}, ""},
		"a claim that is not deleted": {func(c *doctor.Cluster) {
			c.Claims[0].Status.ReservedFor = nil
			c.Claims[0].DeletionTimestamp, c.Claims[0].Finalizers = ptr.To(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))), []string{"resource.kubernetes.io/delete-protection"}
		}, "problem | claims | claim default/train | its deletion began at 2026-01-02T03:04:05Z, and it has the finalizers resource.kubernetes.io/delete-protection"},
		"a claim that the agent refuses": {func(c *doctor.Cluster) {
			c.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-18-00", Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Reason: "AlreadyInUse", Message: "process 17 still uses it"},
			}}}
		}, "problem | prepared | claim default/train | gpu-18-00 is not prepared: AlreadyInUse: process 17 still uses it"},
		"a device that the agent cannot release": {func(c *doctor.Cluster) {
			c.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-18-00", Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Reason: "UnprepareRetried", Message: "it is open in process 17 of another pod"},
			}}}
		}, "problem | prepared | claim default/train | gpu-18-00 is not released: it is open in process 17 of another pod"},
		"a pod that does not end": {func(c *doctor.Cluster) {
			c.Pods[0].DeletionTimestamp = ptr.To(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		}, "problem | consumers | claim default/train | its pod train is being deleted and had time to end until 2026-01-02T03:04:05Z"},
		"a GPU that two drivers publish": {func(c *doctor.Cluster) {
			other := c.Slices[0].DeepCopy()
			other.Spec.Driver = "gpu.example.com"
			c.Slices = append(c.Slices, other)
		}, "problem | drivers | node a | the driver gpu.example.com publishes 4 GPUs of the node too"},
		"devices of another driver of the name": {func(c *doctor.Cluster) {
			other := c.Slices[0].DeepCopy()
			other.Spec.Devices = []resourceapi.Device{{Name: "gpu-0"}}
			c.Slices = append(c.Slices, other)
		}, "problem | drivers | node a | another driver of the name gpu.nvidia.com serves the node too"},
		"NVIDIA's own driver on a node of this one": {func(c *doctor.Cluster) { c.Pods = append(c.Pods, nvidiaDriver("a", "gpus")) },
			"problem | drivers | node a | pod gpus/nvidia-a of NVIDIA's own DRA driver runs on the node too"},
		"NVIDIA's own driver for ComputeDomains": {func(c *doctor.Cluster) { c.Pods = append(c.Pods, nvidiaDriver("a", "compute-domains")) }, ""},
		"NVIDIA's own driver on another node": {func(c *doctor.Cluster) {
			c.Pods, c.Agents, c.Supervisors = append(c.Pods, nvidiaDriver("b", "gpus")), c.Agents[:1], c.Supervisors[:1]
		}, ""},
		"a device plugin": {func(c *doctor.Cluster) {
			plugin := driverPod("plugin", "a", true)
			plugin.Spec.Containers[0].Image = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
			c.Pods = append(c.Pods, plugin)
		}, "warning | device-plugins | node a | pod gpus/plugin-a runs NVIDIA's device plugin"},
		"an old kubelet": {func(c *doctor.Cluster) { c.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.33.1" }, "problem | kubelets | node a | kubelet v1.33.1"},
		"huge pages that the kubelet does not know": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.Capacity = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("8Mi")}
		}, "warning | kubelets | node a | the kernel has 8 huge pages of 2048kB, the kubelet reports 8Mi of hugepages-2Mi"},
		"an old containerd": {func(c *doctor.Cluster) { c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.27" }, "warning | kubelets | node a | containerd 1.7.27"},
		"an old containerd with CDI": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.27"
			c.Facts["a"].Value.ContainerdCDI = fact("true")
		}, ""},
		"a containerd without CDI": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
			c.Facts["a"].Value.ContainerdCDI = fact("false")
		}, "problem | kubelets | node a | enable_cdi = false in /file"},
		"a CRI-O that does not read the specs": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.36.0"
			c.Facts["a"].Value.ContainerdSpecDirs, c.Facts["a"].Value.CRIOSpecDirs = fact([]string{"/var/run/cdi"}), fact([]string{"/etc/cdi"})
		}, "problem | kubelets | node a | cdi_spec_dirs in /file is /etc/cdi, without /var/run/cdi"},
		"a containerd that reads the specs by another path": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
			c.Facts["a"].Value.ContainerdSpecDirs, c.Facts["a"].Value.CRIOSpecDirs = fact([]string{"/etc/cdi", "/run/cdi/"}), fact([]string{"/etc/cdi"})
		}, ""},
		"a containerd that reads the folder of the chart": {func(c *doctor.Cluster) {
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
			c.Agents[0].Spec.Containers[0].Args = append(c.Agents[0].Spec.Containers[0].Args, "--cdi-dir=/opt/cdi")
			c.Facts["a"].Value.ContainerdSpecDirs = fact([]string{"/opt/cdi"})
		}, ""},
		"an agent that does not answer": {func(c *doctor.Cluster) { c.Facts["a"] = doctor.Answer[agentv1.Node]{Err: errors.New("no route")} }, "unknown | facts | node a | no route"},
		"a missing right":               {func(c *doctor.Cluster) { c.Unread[doctor.Policies] = "You have no right to list policies." }, "unknown | policies | cluster | You have no right to list policies."},
		"no right to ask agents": {func(c *doctor.Cluster) {
			c.Unread[doctor.AgentFacts], c.Facts = "You have no right to create tokens.", nil
		}, "unknown | facts | cluster | You have no right to create tokens."},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			tc.given(c)
			findings := doctor.Examine(c)
			complete(t, findings)
			got := urgent(findings)
			if tc.want == "" && len(got) > 0 || tc.want != "" && !slices.Contains(got, tc.want) {
				t.Errorf("want %q, found\n%s", tc.want, strings.Join(got, "\n"))
			}
		})
	}
}

// An annotation that has the value already is no change.
func TestARemedyThatCanBeRepeated(t *testing.T) {
	c := healthy(newWorld(t))
	c.Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.Claims[0].Status.ReservedFor, c.Claims[0].DeletionTimestamp = nil, ptr.To(metav1.NewTime(c.Now.Add(-time.Hour)))
	findings := doctor.Examine(c)
	i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Code == "claim-not-deleted" })
	if i < 0 || !strings.Contains(findings[i].Remedy, "kubectl annotate --overwrite resourceclaim train --namespace default checked=20260102T030405.") {
		t.Errorf("found %+v", findings)
	}
}

func TestEveryCheckOfANode(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		given func(*agentv1.Node)
		want  string
	}{
		"no driver": {func(n *agentv1.Node) {
			n.DriverVersion = agentv1.Fact[string]{Unknown: "not ready: load the module"}
		}, "problem | driver | node a | not ready: load the module"},
		"a label that is not followed": {func(n *agentv1.Node) { n.ConfigProblem = `the label is not followed; the node still offers "mig"` },
			`problem | node-config | node a | the label is not followed; the node still offers "mig"`},
		"no persistence":             {func(n *agentv1.Node) { n.GPUs[1].Persistence = fact("off") }, "warning | persistence | node a | persistence mode is off (gpu-43-00)"},
		"the daemon for persistence": {func(n *agentv1.Node) { n.GPUs[1].Persistence, n.Persistenced = fact("off"), fact(true) }, ""},
		"a fabric that is not ready": {func(n *agentv1.Node) {
			n.GPUs[0].FabricState, n.GPUs[1].FabricState = fact("in-progress"), fact("failed")
		}, "problem | fabric | node a | the registration with the NVSwitch fabric is in-progress (gpu-1b-00); the registration with the NVSwitch fabric is failed (gpu-43-00)"},
		"no fabric manager": {func(n *agentv1.Node) { n.FabricManager = fact(false) }, "problem | fabric | node a | the GPU has NVSwitch links, and no process nv-fabricmanager runs (2 GPUs)"},
		"another fabric manager, which does not start": {func(n *agentv1.Node) {
			n.FabricManager, n.FabricManagerRelease, n.GPUs[0].FabricState = fact(false), fact("610.1"), fact("failed")
		}, "problem | fabric | node a | the installed Fabric Manager is 610.1, and the driver is 615.10.01 (2 GPUs)"},
		"another fabric manager, which still runs": {func(n *agentv1.Node) { n.FabricManagerRelease = fact("610.1") },
			"warning | fabric | node a | the installed Fabric Manager is 610.1, and the driver is 615.10.01 (2 GPUs)"},
		"another fabric manager on GPUs without a fabric": {func(n *agentv1.Node) {
			n.FabricManagerRelease, n.GPUs[0].NVSwitch, n.GPUs[1].NVSwitch = fact("610.1"), fact(false), fact(false)
		}, ""},
		"the fabric manager of the driver": {func(n *agentv1.Node) { n.FabricManagerRelease = fact("615.10.01") }, ""},
		"no fabric manager on a GPU that has registered": {func(n *agentv1.Node) {
			n.FabricManager, n.GPUs[0].FabricState, n.GPUs[1].FabricState = fact(false), fact("completed"), fact("completed")
		}, ""},
		"a hot GPU": {func(n *agentv1.Node) {
			n.GPUs[0].Clocks = fact(agentv1.Clocks{SMMHz: 900, MaxSMMHz: 1980, Reasons: []string{"sw-power-cap", "hw-thermal-slowdown"}})
		}, "warning | clocks | node a | 900 of 1980 MHz because of hw-thermal-slowdown (gpu-1b-00)"},
		"limited clocks": {func(n *agentv1.Node) {
			n.GPUs[0].Clocks = fact(agentv1.Clocks{SMMHz: 900, MaxSMMHz: 1980, Reasons: []string{"application-clocks"}})
		}, "warning | clocks | node a | 900 of 1980 MHz because of application clocks (gpu-1b-00)"},
		"a narrow link":                      {func(n *agentv1.Node) { n.GPUs[0].LinkWidth = fact(8) }, "warning | pcie | node a | PCIe link of 8 lanes instead of 16 (gpu-1b-00)"},
		"ACS":                                {func(n *agentv1.Node) { n.GPUs[0].ACSRedirect = fact([]string{"0000:17:02.0"}) }, "warning | acs | node a | ACS redirects peer requests at 0000:17:02.0 (gpu-1b-00)"},
		"an IOMMU that translates":           {func(n *agentv1.Node) { n.GPUs[0].IOMMUType = fact("DMA-FQ") }, "warning | iommu | node a | the IOMMU translates its addresses (type DMA-FQ) (gpu-1b-00)"},
		"no way to GPU memory for RDMA":      {func(n *agentv1.Node) { n.OpenModules = fact(false) }, "warning | peermem | node a | RDMA devices mlx5_0, without nvidia_peermem and without open kernel modules"},
		"nvidia_peermem":                     {func(n *agentv1.Node) { n.OpenModules, n.Peermem = fact(false), fact(true) }, ""},
		"little locked memory":               {func(n *agentv1.Node) { n.Memlock = fact("65536") }, "warning | memlock | node a | containers can lock 65536 bytes of memory"},
		"little locked memory without RDMA":  {func(n *agentv1.Node) { n.Memlock, n.RDMADevices = fact("65536"), fact[[]string](nil) }, ""},
		"cgroup v1":                          {func(n *agentv1.Node) { n.Controllers = fact[[]string](nil) }, "warning | cgroup | node a | the node has cgroups of version 1"},
		"a kernel that limits no GPU memory": {func(n *agentv1.Node) { n.Controllers = fact([]string{"cpu"}) }, "warning | cgroup | node a | cgroup v2 without dmem and misc"},
		"a driver that limits no GPU memory": {func(n *agentv1.Node) { n.Controllers, n.DriverVersion = fact([]string{"cpu"}), fact("570.1") }, ""},
		"CPUs of all nodes":                  {func(n *agentv1.Node) { n.CPUManager = fact("none") }, "warning | cpu-manager | node a | CPU manager policy none on 2 NUMA nodes"},
		"no transparent huge pages":          {func(n *agentv1.Node) { n.TransparentHugePages = fact("never") }, "warning | transparent-huge-pages | node a | transparent huge pages: never"},
		"kernel-log": {func(n *agentv1.Node) {
			n.KernelLog = agentv1.Fact[bool]{Source: "/dev/kmsg", Unknown: "permission denied"}
		}, "warning | kernel-log | node a | permission denied"},
		"swap":      {func(n *agentv1.Node) { n.SwapBytes = fact(uint64(3 << 29)) }, "warning | swap | node a | 1.5Gi of swap"},
		"slow CPUs": {func(n *agentv1.Node) { n.Governors = fact([]string{"performance", "powersave"}) }, "warning | governor | node a | frequency governor performance, powersave"},
		"a file that the agent cannot read": {func(n *agentv1.Node) {
			n.CPUManager = agentv1.Fact[string]{Source: "/var/lib/kubelet/cpu_manager_state", Unknown: "permission denied"}
		}, "unknown | cpu-manager | node a | permission denied"},
		"a GPU whose clocks cannot be read": {func(n *agentv1.Node) {
			n.GPUs[1].Clocks = agentv1.Fact[agentv1.Clocks]{Source: "NVML", Unknown: "timed out"}
		}, "unknown | clocks | node a | timed out (gpu-43-00)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			tc.given(c.Facts["a"].Value)
			findings := doctor.Examine(c)
			complete(t, findings)
			got := urgent(findings)
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || got[0] != tc.want) {
				t.Errorf("want %q, found\n%s", tc.want, strings.Join(got, "\n"))
			}
		})
	}
}

// No policy of the kubelet considers the GPUs of claims, and the driver of CPUs needs none.
func TestWhoAssignsTheCPUsNearGPUs(t *testing.T) {
	w := newWorld(t)
	cpus := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "cpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "dra.cpu", NodeName: ptr.To("a"), Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: "cpudevnuma000"}},
	}}
	for name, tc := range map[string]struct {
		policy  string
		claimed bool
		want    string
		remedy  string
	}{
		"none":                           {"none", false, "warning | cpu-manager | node a | CPU manager policy none on 2 NUMA nodes", "claim GPU and CPUs together"},
		"none, and a driver of CPUs":     {"none", true, "", ""},
		"static":                         {"static", false, "", ""},
		"static, and a driver of CPUs":   {"static", true, "warning | cpu-manager | node a | CPU manager policy static, and CPUs of dra.cpu", "cpuManagerPolicy: none"},
		"no state, and a driver of CPUs": {"", true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			c.Facts["a"].Value.CPUManager = fact(tc.policy)
			if tc.claimed {
				c.Slices = append(c.Slices, cpus)
			}
			findings := doctor.Examine(c)
			complete(t, findings)
			got := urgent(findings)
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || got[0] != tc.want) {
				t.Errorf("want %q, found\n%s", tc.want, strings.Join(got, "\n"))
			}
			if tc.want != "" && (!strings.Contains(findings[0].Remedy, tc.remedy) || strings.Contains(findings[0].Remedy, "topologyManagerPolicy")) {
				t.Errorf("remedy %q, want one that says %q and advises no Topology Manager", findings[0].Remedy, tc.remedy)
			}
		})
	}
}

// Latency wants never or madvise, and throughput madvise or always.
func TestTransparentHugePages(t *testing.T) {
	w := newWorld(t)
	for mode, want := range map[string]string{"never": "steady latency", "madvise": "", "always": "madvise"} {
		c := healthy(w)
		c.Facts["a"].Value.TransparentHugePages = fact(mode)
		for _, f := range doctor.Examine(c) {
			if f.Check != "transparent-huge-pages" || f.Object != "node a" {
				continue
			}
			if text := f.Found + " " + f.Remedy; !strings.Contains(text, want) || (f.State == doctor.Warning) != (mode == "never") {
				t.Errorf("%s: %+v, want %q", mode, f, want)
			}
		}
	}
}

func TestAClusterOfWhichNothingIsKnown(t *testing.T) {
	findings := doctor.Examine(&doctor.Cluster{Driver: "gpu.nvidia.com", Unread: map[doctor.List]string{}})
	complete(t, findings)
	if !slices.IsSortedFunc(findings, func(a, b doctor.Finding) int {
		order := []doctor.State{doctor.Problem, doctor.Warning, doctor.Unknown, doctor.OK}
		return slices.Index(order, a.State) - slices.Index(order, b.State)
	}) {
		t.Error("the most urgent findings are not first")
	}
}
