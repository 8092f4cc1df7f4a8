// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// Code describes what a check can find. Its name does not change in later releases.
type Code struct {
	// Name is the value of [Finding.Code], in small letters and hyphens.
	Name string
	// Check is the check that finds it; empty if any check can.
	Check string
	// State is the most urgent state of the finding.
	State State
	// Summary is a clause without a full stop.
	Summary string
	// Read is the document with more about it, below docs; empty if there is none.
	Read string
}

// Codes returns all codes in the order of the documents. The causes for which new claims do not
// get a GPU are codes of the check "health", and those of shares of the check "limits".
func Codes() []Code {
	all := slices.Clone(codes)
	last := slices.IndexFunc(all, func(c Code) bool { return c.Name == codeRule })
	return slices.Insert(all, last, causes()...)
}

// causes returns the codes of the causes.
func causes() []Code {
	var all []Code
	for _, c := range cause.All() {
		code := Code{Name: section(c.Code), Check: "health", State: stateOf(c), Summary: c.Meaning, Read: "user/troubleshooting.md#causes"}
		switch {
		case c.Key == v1alpha1.TaintUnhealthy:
			code.Read = "admin/failed-gpus.md#gpus-that-fail"
		case c.OfShare():
			code.Check, code.Read = "limits", "user/events.md#when-a-share-does-not-start"
		}
		all = append(all, code)
	}
	return all
}

// stateOf returns the state of a finding about a cause.
func stateOf(c cause.Cause) State {
	if c.Key == v1alpha1.TaintUnhealthy || c.Key == v1alpha1.TaintInUse && c.Value == v1alpha1.InUseTaintForeignProcess {
		return Problem
	}
	return Warning
}

// isCode reports whether a finding can have the code.
func isCode(name string) bool {
	return slices.ContainsFunc(Codes(), func(c Code) bool { return c.Name == name || c.Name == section(name) })
}

// Mute marks the findings that have one of the codes. It returns an error that wraps
// [gpu.ErrInvalid] if no finding can have a code.
func Mute(findings []Finding, muted []string) error {
	for _, code := range muted {
		if !isCode(code) {
			return fmt.Errorf("%w: no finding has the code %q; %s lists the codes", gpu.ErrInvalid, code, gpu.Page(documentOfFindings))
		}
	}
	for i, f := range findings {
		findings[i].Muted = f.Code != "" && slices.Contains(muted, f.Code)
	}
	return nil
}

const (
	// codeRule is the code of a taint that is not the driver's.
	codeRule = "taint-of-rule"
	// codeFault is the code of the cause of all faults that this release does not know.
	codeFault = "fault"
	// codeFile is the code of a file of a node that its agent cannot read.
	codeFile = "file-not-readable"
)

// codes are the codes of all checks except for causes, in the order of the checks.
var codes = []Code{
	{"list-not-readable", "", Unknown, "you have no right to read a list that the check needs", "admin/rights.md#facts-about-a-node"},
	{codeFile, "", Unknown, "the agent cannot read a file of its node. Simulated nodes are left out", "admin/rights.md#facts-about-a-node"},
	{"fact-unknown", "", Unknown, "the agent cannot read a setting of its node by NVML", "admin/rights.md#facts-about-a-node"},

	{"server-version-unknown", "server", Unknown, "the API server reports a version that is none", "admin/install.md#before"},
	{"server-too-old", "server", Problem, "the API server is older than Kubernetes 1.34", "admin/install.md#before"},
	{"server-without-shares", "server", Warning, "the API server is older than Kubernetes 1.36, so GPUs are not shared", "admin/install.md#before"},
	{"server-without-counters", "server", Warning, "the API server is older than Kubernetes 1.36.2, so nodes offer no MIG devices and no time slices", "admin/support.md#kubernetes"},
	{"resources-missing", "resources", Problem, "the API server does not serve resource.k8s.io/v1", "admin/install.md#before"},
	{"taint-rules-not-served", "resources", Warning, "the API server does not serve DeviceTaintRules", "admin/install.md#before"},
	{"shares-not-published", "shares", Warning, "no published device can be shared", "admin/install.md#before"},
	{"class-missing", "classes", Problem, "no DeviceClass selects devices of the driver", "user/claim-reference.md#deviceclasses-and-extended-resources"},
	{"class-of-chart-missing", "missing-classes", Problem, "a template or waiting claim names a DeviceClass of the chart that does not exist", "user/claim-reference.md#deviceclasses-and-extended-resources"},
	{"selector-fails", "selectors", Problem, "a selector fails on a device that lacks what it reads. It is a problem of a DeviceClass, and a warning about a template or claim", "user/attributes.md#attributes"},
	{"selector-matches-nothing", "selectors", Warning, "a selector or constraint reads something that no device has", "user/attributes.md#attributes"},
	{"selectors-not-evaluated", "selectors", Unknown, "there are more selectors than the check evaluates", "user/explain.md#why-a-pod-waits"},
	{"extended-resource-twice", "extended-resources", Problem, "two DeviceClasses serve one extended resource", "user/claim-reference.md#deviceclasses-and-extended-resources"},
	{"extended-resource-of-device-plugin", "extended-resources", Warning, "a device plugin serves the extended resource of a DeviceClass too", "admin/migrate-from-device-plugin.md"},
	{"policy-missing", "policies", Problem, "an admission policy that limits agents is missing", "admin/rights.md#what-it-may-do"},
	{"policy-not-bound", "policies", Problem, "an admission policy has no binding, and so no effect", "admin/policy.md"},
	{"policy-not-enforced", "policies", Warning, "an admission policy only reports what it should refuse", "admin/policy.md"},

	{"agent-missing", "agents", Problem, "no agent of the driver runs", "admin/install.md#check-the-installation"},
	{"no-node-selected", "agents", Problem, "the DaemonSet of the agents selects no node", "admin/install.md#check-the-installation"},
	{"agent-not-ready", "agents", Problem, "the agent of a node is not ready", "admin/metrics.md"},
	{"rollout-stuck", "rollouts", Problem, "an update of agents or supervisors makes no progress", "admin/install.md"},
	{"rollout-on-delete", "rollouts", Warning, "pods of an older release run until they are deleted", "admin/install.md"},
	{"pods-not-created", "rollouts", Problem, "selected nodes have no pod of the driver", "admin/install.md#check-the-installation"},
	{"pod-not-scheduled", "rollouts", Problem, "the scheduler does not place a pod of the driver on its node", "admin/install.md#check-the-installation"},
	{"supervisor-not-ready", "supervisors", Problem, "the MPS supervisor of a node is not ready", "user/events.md#when-a-share-does-not-start"},
	{"supervisor-missing", "supervisors", Problem, "the agent of a node expects an MPS supervisor, and the node has none", "user/events.md#when-a-share-does-not-start"},
	{"node-not-ready", "nodes", Problem, "a node with GPUs is not ready, so what it publishes is old", ""},
	{"slices-of-missing-node", "slices", Problem, "devices of a node are published, and the node does not exist", ""},
	{"node-without-agent", "slices", Problem, "devices of a node are published, and no agent runs there", "admin/operate.md#troubleshooting"},
	{"node-without-devices", "slices", Problem, "the agent of a node is ready, and publishes no devices", "admin/operate.md#troubleshooting"},
	{"pool-incomplete", "pools", Problem, "some slices of a node's pool are missing", ""},
	{codeRule, "health", Warning, "a DeviceTaintRule taints a GPU, or a release of the driver with causes that this one does not know", "user/troubleshooting.md#causes"},
	{"gpus-missing", "peers", Warning, "a node publishes fewer GPUs of a product than other nodes with it", "admin/operate.md#troubleshooting"},
	{"driver-releases-differ", "driver-releases", Warning, "nodes with GPUs of one product have different releases of the NVIDIA driver", ""},

	{"claim-not-deleted", "claims", Problem, "a deleted claim keeps its devices, and no pod uses it", ""},
	{"claim-deleted-in-use", "claims", Warning, "a claim was deleted while a pod uses it", ""},
	{"claim-unused", "claims", Warning, "a claim has devices, and no pod uses it", ""},
	{"claim-of-missing-node", "claims", Problem, "a claim has devices of a node that does not exist", ""},
	{"claims-without-agent", "claims", Problem, "claims have devices of a node without an agent", "admin/operate.md#troubleshooting"},
	{"claim-invalid", "prepared", Warning, "an agent refuses a claim, which its user must change", "user/events.md#event-texts"},
	{"claim-not-prepared", "prepared", Problem, "an agent cannot prepare a claim", "user/events.md#event-texts"},
	{"claim-not-released", "prepared", Problem, "an agent cannot release a device of an ended pod, because a process uses it", "admin/mig.md#a-mig-device-that-cannot-be-destroyed"},
	{"pod-not-terminated", "consumers", Problem, "a pod with devices does not end. It is a warning if only finalizers keep it", "user/troubleshooting.md#the-pod-stays-terminating"},
	{"memory-unlimited", "limits", Warning, "a container of a claim computes without its memory limit", "user/events.md#when-a-share-does-not-start"},
	{"memory-limit-not-checked", "limits", Unknown, "the agent cannot check whether each container of a claim has its memory limit", "user/events.md#when-a-share-does-not-start"},
	{"claim-not-named", "containers", Warning, "no container of a pod names one of the pod's claims, so none gets its devices", "user/choose.md#from-a-claim-to-a-gpu"},
	{"two-shares-in-container", "containers", Warning, "a container names two shares that MPS limits, and gets the limits of one", "user/share-guarantees.md#what-it-does-not-guarantee"},
	{"share-rounded-up", "containers", Warning, "a claim holds more than it requests, because the scheduler rounds shares up", "user/share.md"},

	{"nvidia-dra-driver", "drivers", Problem, "NVIDIA's own DRA driver publishes the GPUs of the node too", "admin/migration.md#from-nvidias-dra-driver"},
	{"driver-of-same-name", "drivers", Problem, "another driver of the same name serves the node", "admin/migration.md#two-drivers-on-one-node"},
	{"gpu-published-twice", "drivers", Problem, "another driver publishes the same GPUs", "admin/migration.md#two-drivers-in-one-cluster"},
	{"device-plugin-on-node", "device-plugins", Warning, "NVIDIA's device plugin runs on a node of the driver", "admin/migrate-from-device-plugin.md"},
	{"pod-without-claim", "runtime-classes", Warning, "a pod with NVIDIA's RuntimeClass has no claim, and may see all GPUs of its node", "admin/device-plugin-differences.md"},
	{"kubelet-too-old", "kubelets", Problem, "a kubelet is older than 1.34", "admin/install.md#before"},
	{"cdi-off", "kubelets", Problem, "CDI is off in the container runtime", "admin/support.md#container-runtimes"},
	{"cdi-may-be-off", "kubelets", Warning, "CDI is off in the container runtime unless its configuration enables it", "admin/support.md#container-runtimes"},
	{"runtime-without-cdi", "kubelets", Problem, "the container runtime has no CDI", "admin/support.md#container-runtimes"},
	{"cdi-folder-not-read", "kubelets", Problem, "the container runtime does not read the folder of the agent's CDI specs", "admin/support.md#container-runtimes"},
	{"shm-may-be-replaced", "kubelets", Warning, "the container runtime may replace the /dev/shm of MPS shares", "admin/support.md#cri-o"},
	{"runtime-unknown", "kubelets", Unknown, "the container runtime is one that the check does not know", "admin/support.md#container-runtimes"},
	{"huge-pages-not-counted", "kubelets", Warning, "the kubelet reports fewer huge pages than the kernel has", ""},

	{"facts-not-readable", "facts", Unknown, "you have no right to read facts about nodes", "admin/rights.md#facts-about-a-node"},
	{"agent-does-not-answer", "facts", Unknown, "an agent does not answer, or refuses to", "admin/rights.md#facts-about-a-node"},
	{"cpu-manager-conflict", "cpu-manager", Warning, "the kubelet and a CPU driver assign the same CPUs", "user/topology.md"},
	{"cpus-far-from-gpus", "cpu-manager", Warning, "containers run on CPUs far from their GPUs", "user/topology.md"},
	{"nvidia-driver-not-loaded", "driver", Problem, "the NVIDIA driver is not loaded", "admin/operate.md#troubleshooting"},
	{"nvidia-driver-releases-differ", "driver", Problem, "the kernel has a module of another release than the NVIDIA driver's libraries", "admin/operate.md#troubleshooting"},
	{"config-not-followed", "node-config", Problem, "a node does not follow one of its labels, or a file of the chart", "admin/pools.md"},
	{"config-not-checked", "node-config", Unknown, "a node has a label of the driver, and whether its agent follows it is not known", "admin/pools.md"},
	{"label-without-agent", "node-config", Warning, "a node has a label of the driver and no agent", "admin/pools.md"},
	{"label-unknown", "node-config", Warning, "a node has a label that only resembles one of the driver", "admin/names.md#labels"},
	{"persistence-off", "persistence", Warning, "neither persistence mode nor nvidia-persistenced is on", ""},
	{"ecc-off", "ecc", Warning, "the memory of a GPU does not correct errors", ""},
	{"fabric-not-registered", "fabric", Problem, "a GPU has not joined its NVSwitch fabric", "admin/causes.md#fabric-not-ready"},
	{"fabric-manager-missing", "fabric", Problem, "a GPU has NVSwitch links, and nvidia-fabricmanager does not run", "admin/causes.md#fabric-not-ready"},
	{"fabric-manager-release-differs", "fabric", Problem, "Fabric Manager is of another release than the driver. It is a warning while it runs", "admin/causes.md#fabric-not-ready"},
	{"clock-slowdown", "clocks", Warning, "heat or power slows a GPU down", ""},
	{"clock-limited", "clocks", Warning, "an administrator has limited the clocks of a GPU", ""},
	{"pcie-link-narrow", "pcie", Warning, "a GPU has fewer PCIe lanes than it could", ""},
	{"acs-redirects", "acs", Warning, "PCIe switches send transfers between GPUs through the root complex", "admin/support.md#settings-of-the-host"},
	{"iommu-translates", "iommu", Warning, "the IOMMU translates the addresses of a GPU", "admin/support.md#settings-of-the-host"},
	{"gpu-rdma-missing", "peermem", Warning, "network adapters cannot reach the memory of GPUs", "admin/links-and-power.md#gpudirect-in-containers"},
	{"memlock-small", "memlock", Warning, "containers can lock too little memory for RDMA", "admin/links-and-power.md#gpudirect-in-containers"},
	{"cgroup-v1", "cgroup", Warning, "a node has cgroups of version 1", "user/share-guarantees.md#the-levels"},
	{"cgroup-without-dmem", "cgroup", Warning, "the kernel cannot limit the GPU memory of cgroups", "user/share-guarantees.md#the-levels"},
	{"thp-never", "transparent-huge-pages", Warning, "transparent huge pages are off", ""},
	{"swap-on", "swap", Warning, "a node swaps", ""},
	{"cpu-governor", "governor", Warning, "CPUs may run below their highest frequency", ""},
	{"kernel-log-unknown", "kernel-log", Warning, "the agent cannot read the kernel's log, or not find its processes", "admin/causes.md#faults-of-programs"},
}
