// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// The first releases of containerd with CDI, and with CDI switched on. Each CRI-O that a kubelet
// accepts has it switched on.
func containerdCDI() *version.Version   { return version.MustParseGeneric("1.7.0") }
func containerdCDIOn() *version.Version { return version.MustParseGeneric("2.0.0") }

// crioCDILast returns the first release of CRI-O that applies CDI specs after its own mounts. Patch
// releases of older ones may do so too: https://github.com/cri-o/cri-o/pull/9292.
func crioCDILast() *version.Version { return version.MustParseGeneric("1.35.0") }

// runtimeOf returns a finding if containers of the node may not get their GPUs by CDI; nil
// otherwise. facts is nil if they are not known.
func runtimeOf(node *corev1.Node, facts *agentv1.Node) []Finding {
	name, text, _ := strings.Cut(node.Status.NodeInfo.ContainerRuntimeVersion, "://")
	release, err := version.ParseGeneric(text)
	found := func(code, found, meaning, remedy string) []Finding {
		return []Finding{newFinding(code, onNode(node.Name), found, meaning, remedy)}
	}
	const meaning = "containers do not get their GPUs, which they need CDI for"
	switch isSet := facts != nil && facts.ContainerdCDI.IsKnown(); name {
	case "", "cri-o": // "" if the kubelet has not reported it
	case "containerd":
		switch {
		case isSet && facts.ContainerdCDI.Value == "false":
			return found("cdi-off", "enable_cdi = false in "+facts.ContainerdCDI.Source, meaning, "remove the line and restart containerd")
		case err == nil && release.LessThan(containerdCDI()):
			return found("runtime-without-cdi", name+" "+text, meaning, "upgrade to containerd 2")
		case err == nil && release.LessThan(containerdCDIOn()) && (!isSet || facts.ContainerdCDI.Value != "true"):
			return found("cdi-may-be-off", name+" "+text, "before containerd 2, CDI is off unless its configuration enables it; containers get their GPUs through CDI",
				"upgrade to containerd 2, or set enable_cdi = true in the section of the CRI plugin and restart containerd")
		}
	case "docker":
		return found("runtime-without-cdi", name+" "+text, meaning, "use containerd 2 or CRI-O instead of Docker and cri-dockerd")
	default:
		return found("runtime-unknown", name+" "+text, "whether containers get their GPUs, which they need CDI for, is not known",
			"read in the documentation of the runtime whether it has CDI, and mute the finding if it has")
	}
	return nil
}

// replacedShm returns a finding if CRI-O may replace the /dev/shm of MPS shares. It returns nil if
// the agent of the node uses no MPS.
func (c *Cluster) replacedShm(node *corev1.Node) []Finding {
	text, isCRIO := strings.CutPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "cri-o://")
	release, err := version.ParseGeneric(text)
	if !isCRIO || err != nil || release.AtLeast(crioCDILast()) {
		return nil
	}
	if agent := c.agentOn(node.Name); agent == nil || Argument(&agent.Spec, "mps-supervisor") == "" {
		return nil
	}
	return []Finding{newFinding("shm-may-be-replaced", onNode(node.Name), "CRI-O "+text,
		"CRI-O before 1.35 may replace the /dev/shm of MPS; programs with MPS shares then fail with MPS_CONNECTION_FAILED",
		"upgrade to CRI-O 1.35 or newer, or set mps.enabled=false; mute the finding if a program with an MPS share runs there")}
}

// unreadSpecs returns a finding if the container runtime does not read the agent's CDI specs. It
// returns nil if its configuration has the agent's folder, or names none.
func (c *Cluster) unreadSpecs(node *corev1.Node, facts *agentv1.Node) []Finding {
	agent := c.agentOn(node.Name)
	if facts == nil || agent == nil {
		return nil
	}
	dirs := facts.ContainerdSpecDirs
	if strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "cri-o://") {
		dirs = facts.CRIOSpecDirs
	}
	own := cmp.Or(Argument(&agent.Spec, "cdi-dir"), "/var/run/cdi")
	if !dirs.IsKnown() || len(dirs.Value) == 0 || slices.ContainsFunc(dirs.Value, func(dir string) bool { return samePath(dir, own) }) {
		return nil
	}
	return []Finding{newFinding("cdi-folder-not-read", onNode(node.Name), fmt.Sprintf("cdi_spec_dirs in %s is %s, without %s", dirs.Source, list(dirs.Value), own),
		"the container runtime does not find the agent's CDI specs, and containers with claims do not start",
		"add "+own+" to cdi_spec_dirs and restart the container runtime, or set cdi.dir of the chart to one of its folders")}
}

// samePath reports whether two paths are of one folder. /var/run is a link to /run.
func samePath(a, b string) bool {
	clean := func(p string) string {
		p = path.Clean(p)
		if strings.HasPrefix(p, "/var/run/") {
			return strings.TrimPrefix(p, "/var")
		}
		return p
	}
	return clean(a) == clean(b)
}

// checkRuntimeClasses reports pods without claims that NVIDIA's container runtime handles. It follows
// the variable NVIDIA_VISIBLE_DEVICES, which most CUDA images set to "all"; the driver sets it to
// "void" for containers with claims.
func checkRuntimeClasses(c *Cluster) []Finding {
	var findings []Finding
	for _, pod := range c.podsNearGPUs() {
		class := pod.Spec.RuntimeClassName
		if class == nil || !strings.HasPrefix(*class, "nvidia") || fleet.HasEnded(pod) ||
			len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil || requestsGPU(pod) || isOfDaemonSet(pod) {
			continue
		}
		findings = append(findings, newFinding("pod-without-claim", "pod "+fleet.FullName(pod),
			fmt.Sprintf("it has the RuntimeClass %s and no claim, on node %s", *class, pod.Spec.NodeName),
			"unless its image sets NVIDIA_VISIBLE_DEVICES to void or none, its containers can use all GPUs of the node, also those of claims",
			"claim a GPU in the pod, or remove runtimeClassName from it"))
	}
	return orOK(findings, "no pod but those of DaemonSets has NVIDIA's RuntimeClass without a claim")
}

// requestsGPU reports whether a pod requests a GPU of a device plugin.
func requestsGPU(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(container.Resources.Limits)), func(name corev1.ResourceName) bool {
			return strings.HasPrefix(string(name), "nvidia.com/")
		})
	})
}

// isOfDaemonSet reports whether a DaemonSet made a pod, as it does for monitoring agents.
func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
