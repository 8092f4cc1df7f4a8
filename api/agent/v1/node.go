// SPDX-License-Identifier: Apache-2.0

package v1

// Fact is a value and the source from which it was read.
type Fact[T any] struct {
	// Value is the zero value if Unknown is set.
	Value T `json:"value"`
	// Source is the path of a file of the node, or "NVML".
	Source string `json:"source"`
	// Unknown is the reason why the value is not known; empty if it is known.
	Unknown string `json:"unknown,omitempty"`
}

// IsKnown reports whether the value is known.
func (f Fact[T]) IsKnown() bool { return f.Unknown == "" }

// Node is the facts about a node. Unless its comment differs, a field's zero value means that
// the node lacks the thing.
type Node struct {
	// AgentVersion is the version of the agent that has read the facts.
	AgentVersion string `json:"agentVersion"`
	// ConfigProblem is the reason why a label or file of the administrator is not followed:
	// one line of at most 1 KiB. Agents of earlier releases do not report it.
	ConfigProblem string `json:"configProblem,omitempty"`
	// Simulated is set if the GPUs are simulated: facts about GPUs are of the simulation, and
	// files of the host may not be readable. Agents of earlier releases do not report it.
	Simulated bool `json:"simulated,omitempty"`

	// DriverVersion, such as "580.65.06", and CUDAVersion, such as "13.0", are unknown on a
	// node without a driver.
	DriverVersion Fact[string] `json:"driverVersion"`
	CUDAVersion   Fact[string] `json:"cudaVersion"`
	// OpenModules is set for NVIDIA's open kernel modules.
	OpenModules Fact[bool] `json:"openModules"`
	// Peermem is set if the module nvidia_peermem is loaded.
	Peermem Fact[bool] `json:"peermem"`
	// FabricManager and Persistenced are set if the daemon runs.
	FabricManager Fact[bool] `json:"fabricManager"`
	Persistenced  Fact[bool] `json:"persistenced"`
	// FabricManagerRelease is the release of the installed Fabric Manager, such as "580.65.06". It
	// is empty without a package in dpkg's list. Agents of earlier releases do not report it.
	FabricManagerRelease Fact[string] `json:"fabricManagerRelease"`

	// KernelVersion is the release of the kernel, such as "6.8.0-85-generic".
	KernelVersion Fact[string] `json:"kernelVersion"`
	// Controllers are the controllers of cgroup v2; empty with cgroup v1.
	Controllers Fact[[]string] `json:"cgroupControllers"`
	// HugePages is the number of reserved huge pages by their size, such as "2048kB".
	HugePages Fact[map[string]uint64] `json:"hugePages"`
	// TransparentHugePages is "always", "madvise" or "never".
	TransparentHugePages Fact[string] `json:"transparentHugePages"`
	// SwapBytes is the size of all swap areas in bytes.
	SwapBytes Fact[uint64] `json:"swapBytes"`
	// Governors are the different frequency governors of the CPUs, sorted. It is empty
	// if the kernel does not set frequencies, as in most virtual machines.
	Governors Fact[[]string] `json:"governors"`
	// Memlock is the limit of locked memory that the agent's container has, in bytes or
	// "unlimited". Containers have the limit of the container runtime.
	Memlock Fact[string] `json:"memlock"`
	// IOMMU is set if the kernel uses an IOMMU.
	IOMMU Fact[bool] `json:"iommu"`
	// RDMADevices are the names of the RDMA devices, such as "mlx5_0", sorted.
	RDMADevices Fact[[]string] `json:"rdmaDevices"`
	// NUMANodes is the number of NUMA nodes with CPUs.
	NUMANodes Fact[int] `json:"numaNodes"`

	// KernelLog is set if the agent finds the programs of the XIDs in the kernel's log. Agents of earlier releases do not report it.
	KernelLog Fact[bool] `json:"kernelLog"`

	// ContainerdCDI is enable_cdi in containerd's own configuration file: "true" or
	// "false". It is empty if the file does not set it.
	ContainerdCDI Fact[string] `json:"containerdCDI"`
	// ContainerdSpecDirs and CRIOSpecDirs are the configured folders of CDI specs. They are empty if
	// the configuration of the runtime sets none. Agents of earlier releases do not report them.
	ContainerdSpecDirs Fact[[]string] `json:"containerdCDISpecDirs"`
	CRIOSpecDirs       Fact[[]string] `json:"crioCDISpecDirs"`
	// CPUManager is the policy in the state file of the kubelet's CPU manager.
	CPUManager Fact[string] `json:"cpuManager"`

	// GPUs are in order of their PCI address.
	GPUs []GPU `json:"gpus"`
}

// GPU is the facts about a GPU.
type GPU struct {
	// Address is the PCI address, such as "0000:1b:00.0".
	Address string `json:"address"`
	// UUID is the GPU's UUID as NVML writes it: "GPU-" and 36 characters.
	UUID string `json:"uuid"`
	// Model is the product name, such as "NVIDIA H100 80GB HBM3".
	Model string `json:"model"`

	// Persistence is "on" or "off"; empty if NVML does not report it.
	Persistence Fact[string] `json:"persistence"`
	// ECC is "on" or "off"; empty if the GPU has none. Agents of earlier releases do not report
	// it.
	ECC Fact[string] `json:"ecc"`
	// NVSwitch is set if links of the GPU lead to NVSwitch.
	NVSwitch Fact[bool] `json:"nvSwitch"`
	// FabricState is the state of the GPU's registration with its NVSwitch fabric:
	// "not-started", "in-progress", "completed" or "failed"; empty on GPUs that do not
	// register.
	FabricState Fact[string] `json:"fabricState"`
	// Clocks are read for each answer. The agent's last scan has read the other facts of NVML.
	Clocks Fact[Clocks] `json:"clocks"`

	// LinkWidth is the number of PCIe lanes in use, and MaxLinkWidth the most that the GPU has.
	LinkWidth    Fact[int] `json:"linkWidth"`
	MaxLinkWidth Fact[int] `json:"maxLinkWidth"`
	// LinkSpeed is the present speed of a lane, such as "32.0 GT/s PCIe", and MaxLinkSpeed the
	// GPU's highest. Idle GPUs reduce it.
	LinkSpeed    Fact[string] `json:"linkSpeed"`
	MaxLinkSpeed Fact[string] `json:"maxLinkSpeed"`
	// IOMMUType is the type of the GPU's IOMMU group: "identity", "DMA" or "DMA-FQ"; empty
	// without a group.
	IOMMUType Fact[string] `json:"iommuType"`
	// ACSRedirect are the PCIe switches above the GPU that redirect requests through the
	// root complex. The requests are for other devices. A switch is given by the PCI
	// address of its port.
	ACSRedirect Fact[[]string] `json:"acsRedirect"`

	// Links is the number of active NVLinks to each linked GPU of the node, by its PCI
	// address. Behind NVSwitch it is the smaller of the two GPUs' numbers of links. Agents
	// of earlier releases do not report it, nor PCIeSwitch.
	Links map[string]int `json:"links"`
	// PCIeSwitch is the attribute pcieSwitch, a PCI address; empty without a switch.
	PCIeSwitch string `json:"pcieSwitch,omitempty"`
}

// Clocks are the clock of a GPU's SMs, and the reasons why it is below its maximum.
type Clocks struct {
	// SMMHz is the present clock in MHz, and MaxSMMHz the highest one.
	SMMHz    int `json:"smMHz"`
	MaxSMMHz int `json:"maxSMMHz"`
	// Reasons are in NVML's order; none if nothing reduces the clock. They are "gpu-idle",
	// "application-clocks", "sw-power-cap", "hw-slowdown", "sync-boost",
	// "sw-thermal-slowdown", "hw-thermal-slowdown", "hw-power-brake", "display-clocks",
	// "board-limit" and "reliability".
	Reasons []string `json:"reasons,omitempty"`
}
