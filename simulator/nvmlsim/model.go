// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "cmp"

// Model describes a node and its GPUs: what does not change while it runs, and
// the settings with which it boots. Its YAML form is strict: an unknown or
// doubled field is an error. Every string that names an enumeration takes the
// spelling that package gpu uses for it.
type Model struct {
	// Name of the model, such as "dgx-h100". UUIDs that are not given are
	// derived from it.
	Name string `json:"name"`
	// DriverVersion as NVML prints it, such as "570.124.06".
	DriverVersion string `json:"driverVersion"`
	// ModuleVersion is the version of the loaded kernel module. If it is set and differs from
	// DriverVersion, that of the libraries, NVML does not start, as after an update of the
	// driver without a reboot.
	ModuleVersion string `json:"moduleVersion,omitempty"`
	// CUDAVersion is the newest CUDA release the driver supports: "12.8".
	CUDAVersion string `json:"cudaVersion"`
	// Platform is the CPU architecture, "x86_64" (the default) or "aarch64".
	// It decides where the driver's libraries lie.
	Platform string `json:"platform,omitempty"`
	// NUMANodes of the machine, numbered from 0 without gaps.
	NUMANodes []NUMANode `json:"numaNodes"`
	// Fabric is the NVLink fabric that every GPU of the node has joined: of a rack,
	// or with a cluster UUID of zeros that of the machine's own NVSwitches. GPUs
	// before Hopper join none.
	Fabric *Fabric `json:"fabric,omitempty"`
	// MemoryLimits is the driver's backend for memory limits of cgroups: "dmem",
	// "misc" or "off". "off" means that an administrator has switched the limits off.
	// The field is empty for a driver without them, as before release 615.
	MemoryLimits string `json:"memoryLimits,omitempty"`
	// Kinds of GPU, by a name of your choice that GPUs refer to.
	Kinds map[string]Kind `json:"kinds"`
	// GPUs in the order of their NVML index.
	GPUs []GPU `json:"gpus"`
	// NICs are the network adapters of the machine.
	NICs []NIC `json:"nics,omitempty"`
}

// NUMANode is one NUMA node of the machine. Its number is its place in the
// list.
type NUMANode struct {
	// CPUs in the kernel's list format, "0-55,112-167". Empty for a node of
	// memory alone, such as the memory of a GB200's GPU.
	CPUs string `json:"cpus,omitempty"`
	// Socket is the CPU package the node belongs to.
	Socket int `json:"socket,omitempty"`
}

// NIC is a network adapter.
type NIC struct {
	// Address on the PCI bus, "0000:18:00.0".
	Address string `json:"address"`
	// NUMANode, PCIeRoot and Bridges are as of a GPU.
	NUMANode *int     `json:"numaNode,omitempty"`
	PCIeRoot string   `json:"pcieRoot,omitempty"`
	Bridges  []string `json:"bridges,omitempty"`
	// Ethernet is false for an InfiniBand adapter.
	Ethernet bool `json:"ethernet,omitempty"`
	// RDMA is its RDMA device, "mlx5_0"; empty if it has none.
	RDMA string `json:"rdma,omitempty"`
	// Interface is its network interface, "ibp24s0"; empty if it has none.
	Interface string `json:"interface,omitempty"`
	// VirtualOf is the address of the physical adapter of a virtual function. It is
	// empty for a physical adapter.
	VirtualOf string `json:"virtualOf,omitempty"`
}

// Fabric is the multi-node NVLink fabric of the node's GPUs.
type Fabric struct {
	// ClusterUUID is 36 characters.
	ClusterUUID string `json:"clusterUUID"`
	CliqueID    uint32 `json:"cliqueID"`
}

// moduleVersion returns the version of the loaded kernel module.
func (m *Model) moduleVersion() string { return cmp.Or(m.ModuleVersion, m.DriverVersion) }

// Kind is what GPUs of one product have in common.
type Kind struct {
	// Name of the product, "NVIDIA H100 80GB HBM3".
	Name string `json:"name"`
	// Brand: Nvidia, Tesla, GeForce, Quadro, NvidiaRTX, ... (see brands).
	Brand string `json:"brand"`
	// Architecture: Kepler, Maxwell, Pascal, Volta, Turing, Ampere, Ada
	// Lovelace, Hopper, Blackwell.
	Architecture string `json:"architecture"`
	// ComputeCapability of CUDA: "9.0".
	ComputeCapability string `json:"computeCapability"`
	// MemoryMiB is the total of NVML's memory info v1.
	MemoryMiB uint64 `json:"memoryMiB"`
	// ReservedMiB of it is held by the driver and the firmware.
	ReservedMiB uint64 `json:"reservedMiB,omitempty"`
	// BAR1MiB is the size of the BAR1 aperture; not reported where 0.
	BAR1MiB uint64 `json:"bar1MiB,omitempty"`
	// Multiprocessors is the number of SMs, Cores that of CUDA cores.
	Multiprocessors int `json:"multiprocessors"`
	Cores           int `json:"cores"`
	// SMClockMHz is the highest clock of the SMs. If it is absent, the clock is the usual
	// one of the architecture's server GPUs.
	SMClockMHz uint32 `json:"smClockMHz,omitempty"`
	// PCIDevice and PCISubsystem contain the device ID (upper 16 bits) and the vendor
	// ID (lower 16 bits). The format is NVML's: "0x233010de".
	PCIDevice    string `json:"pciDevice"`
	PCISubsystem string `json:"pciSubsystem,omitempty"`
	// ECC and Persistence are the modes at boot; absent where the GPU has no
	// such mode.
	ECC         *bool `json:"ecc,omitempty"`
	Persistence *bool `json:"persistence,omitempty"`
	// AddressingMode is HMM, ATS or None; absent if the GPU does not report it.
	AddressingMode string `json:"addressingMode,omitempty"`
	// ComputeMode at boot: Default (also when empty), Prohibited,
	// ExclusiveProcess.
	ComputeMode string `json:"computeMode,omitempty"`
	// NVLinkVersion is "4.0" on an H100; empty without NVLink.
	NVLinkVersion string `json:"nvlinkVersion,omitempty"`
	// Links that every GPU of the kind has; a GPU's own links replace them.
	Links []Links `json:"links,omitempty"`
	// MIG is absent on GPUs that cannot be partitioned.
	MIG *MIG `json:"mig,omitempty"`
	// Refusals are the calls that the GPUs refuse, with NVML's code. An example is
	// "DeviceGetPersistenceMode: ERROR_NO_PERMISSION". A refusal replaces the answer that
	// follows from the other fields. ERROR_FUNCTION_NOT_FOUND removes the function from the
	// driver. The refusal of DeviceGetMemoryLimits_v1 is for cgroups without limits only.
	// [RefusableCalls] lists the names.
	Refusals map[string]string `json:"refusals,omitempty"`
}

// Links is a run of NVLinks with the same far end.
type Links struct {
	// Numbers of the links on this GPU: "3" or "0-5".
	Numbers string `json:"numbers"`
	// Remote is GPU, Switch or CPU; empty if unknown.
	Remote string `json:"remote,omitempty"`
	// Address of the far end, "0000:1b:00.0"; empty if unknown.
	Address string `json:"address,omitempty"`
	// Down says that the links are inactive from boot on.
	Down bool `json:"down,omitempty"`
}

// MIG says how a kind of GPU can be partitioned.
type MIG struct {
	// NeedsReset is true for Ampere: a change of the MIG mode waits for a
	// reset of the GPU and then outlives reboots. From Hopper on a change
	// holds at once, and until the driver is unloaded.
	NeedsReset bool `json:"needsReset,omitempty"`
	// MemorySlices of a whole GPU; placements lie within them.
	MemorySlices int `json:"memorySlices"`
	// ComputeSlices of a whole GPU: the most instances it can hold.
	ComputeSlices int `json:"computeSlices"`
	// NVLCompute is true if the GPU offers a second compute instance profile of seven
	// slices, for multi-GPU use. An A100 says "not supported" to it, although go-nvml and
	// nvml.h name it (kubernetes-sigs/dra-driver-nvidia-gpu#1480); no GPU that
	// offers it is known.
	NVLCompute bool `json:"nvlCompute,omitempty"`
	// Profiles of GPU instances, in the order of NVML's profile number.
	Profiles []MIGProfile `json:"profiles"`
}

// MIGProfile is a profile of GPU instances.
type MIGProfile struct {
	// Name as nvidia-smi prints it: "1g.10gb+me". The number before the g is
	// the number of compute slices.
	Name string `json:"name"`
	// Profile is the number of the profile in NVML's calls
	// (NVML_GPU_INSTANCE_PROFILE_*). ID is its number in instances and in the
	// output of nvidia-smi. The smallest profile has 0 and 19.
	Profile int `json:"profile"`
	ID      int `json:"id"`
	// MemoryMiB of an instance.
	MemoryMiB uint64 `json:"memoryMiB"`
	// Multiprocessors (SMs) of an instance.
	Multiprocessors int `json:"multiprocessors"`
	// Engines of an instance.
	CopyEngines int  `json:"copyEngines,omitempty"`
	Decoders    int  `json:"decoders,omitempty"`
	Encoders    int  `json:"encoders,omitempty"`
	JPEGs       int  `json:"jpegs,omitempty"`
	OFAs        int  `json:"ofas,omitempty"`
	P2P         bool `json:"p2p,omitempty"`
	// Max is the number of instances that fit on an empty GPU.
	Max int `json:"max"`
	// Size of an instance in memory slices, and the Starts it can have.
	Size   int   `json:"size"`
	Starts []int `json:"starts"`
}

// GPU is one GPU of the node.
type GPU struct {
	// Kind refers to Model.Kinds.
	Kind string `json:"kind"`
	// Address on the PCI bus, "0000:1b:00.0".
	Address string `json:"address"`
	// UUID as NVML prints it: "GPU-" and 36 characters. If it is empty, it is derived
	// from the model's name and the address.
	UUID string `json:"uuid,omitempty"`
	// Minor is the N of /dev/nvidiaN; the GPU's index where absent.
	Minor *int `json:"minor,omitempty"`
	// Serial number of the board; not told where empty.
	Serial string `json:"serial,omitempty"`
	// NUMANode whose CPUs are near; absent where the platform states none.
	NUMANode *int `json:"numaNode,omitempty"`
	// MemoryNUMANode is the NUMA node that the GPU's own memory forms on
	// coherent platforms (GB200).
	MemoryNUMANode *int `json:"memoryNUMANode,omitempty"`
	// PCIeRoot is the root complex, "pci0000:15". If it is empty, the GPU has a
	// separate root bus ("pci<domain>:<bus>").
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// Bridges between root and GPU, root port first.
	Bridges []string `json:"bridges,omitempty"`
	// Links of this GPU in place of its kind's; an empty list means none.
	Links []Links `json:"links,omitzero"`
	// MIGMode at boot.
	MIGMode bool `json:"migMode,omitempty"`
	// Recovery is the action that the driver asks for when the node is created. It is empty
	// for none. A reset that is enough for it ends it, and so does a reboot.
	Recovery RecoveryAction `json:"recovery,omitempty"`
}
