// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// This file holds every name that users, administrators and other programs read
// or write: in ResourceSlices, claims, DeviceClasses, nodes and the metadata of
// containers. Tables of the documents and the chart are generated from the comments
// here, also from those behind the names: see docs/dev/first-change.md.

// GroupName is the API group of this driver. It begins the names of the driver's
// taints, labels and annotations, and does not change with the driver's name.
const GroupName = "gpu.nvidia.com"

// DriverName is the default name of the driver in ResourceSlices, claims and
// DeviceClasses. The agent's flag --driver-name sets another name. It is the domain of
// the driver's attributes and capacities.
const DriverName = "gpu.nvidia.com"

// The types of devices, which are the values of [AttributeType].
const (
	// DeviceTypeGPU is a whole GPU, of which claims can take shares.
	DeviceTypeGPU = "gpu" // gpu-1b-00
	// DeviceTypeMIG is a MIG device, of which claims can take shares.
	DeviceTypeMIG = "mig" // gpu-1b-00-mig-1g-10gb-0
	// DeviceTypeTimeSlice is the time slices of a GPU, of which claims take slots.
	DeviceTypeTimeSlice = "timeslice" // gpu-1b-00-ts
	// DeviceTypeSeat is the equal seats of a GPU, of which claims take some. MPS limits
	// each to its part of memory and compute.
	DeviceTypeSeat = "seat" // gpu-1b-00-seat
	// DeviceTypeMonitor is all GPUs of a node, for monitoring agents.
	DeviceTypeMonitor = "monitor" // node-gpus
)

// The attributes of devices. A device has an attribute only if its value is known.
const (
	// AttributeType is the type of the device.
	AttributeType = "type" // string: gpu
	// AttributeUUID is NVML's UUID.
	AttributeUUID = "uuid" // string: GPU-8f5e…
	// AttributeProductName is the name of the product.
	AttributeProductName = "productName" // string: NVIDIA H100 80GB HBM3
	// AttributeBrand is the brand of the product.
	AttributeBrand = "brand" // string: Nvidia
	// AttributeArchitecture is the architecture of the GPU.
	AttributeArchitecture = "architecture" // string: Hopper
	// AttributeCUDAComputeCapability is the CUDA compute capability.
	AttributeCUDAComputeCapability = "cudaComputeCapability" // version: 9.0.0
	// AttributeDriverVersion is the version of the NVIDIA driver. Semantic versions
	// have no leading zeros: 570.124.06 becomes 570.124.6.
	AttributeDriverVersion = "driverVersion" // version: 570.124.6
	// AttributeCUDADriverVersion is the newest CUDA release that the driver supports.
	AttributeCUDADriverVersion = "cudaDriverVersion" // version: 12.8.0
	// AttributeMultiprocessors is the number of SMs.
	AttributeMultiprocessors = "multiprocessors" // int: 132
	// AttributeMIGCapable is true if the GPU can be cut into MIG devices.
	AttributeMIGCapable = "migCapable" // bool: true
	// AttributeMIGMode is the current MIG mode; only on GPUs that have one.
	AttributeMIGMode = "migMode" // string: Disabled
	// AttributeNVLinkDomain is a name that GPUs have in common if all of them are
	// linked with each other.
	AttributeNVLinkDomain = "nvlinkDomain" // string: 1b-00
	// AttributeNVLinkPeers is the GPUs at the other ends of the links, by their names
	// without "gpu-". It is empty if there are none.
	AttributeNVLinkPeers = "nvlinkPeers" // string: 43-00,52-00
	// AttributeNVLinkLinks is the number of active links of the GPU.
	AttributeNVLinkLinks = "nvlinkLinks" // int: 18
	// AttributeNVLinkVersion is the version of NVLink.
	AttributeNVLinkVersion = "nvlinkVersion" // version: 4.0.0
	// AttributeNVLinkSwitch is true if links of the GPU lead to NVSwitch. It is false if
	// all lead to other GPUs or CPUs.
	AttributeNVLinkSwitch = "nvlinkSwitch" // bool: true
	// AttributeNVLinkCliques is every fully linked group that the GPU belongs to; only
	// with --list-attributes.
	AttributeNVLinkCliques = "nvlinkCliques" // list of strings: 1b-00,43-00
	// AttributePCIeSwitch is the PCIe switch of the GPU, by the PCI address of its upstream
	// port. Behind several switches, the address of the outermost one precedes it.
	AttributePCIeSwitch = "pcieSwitch" // string: 0000:16:00.0
	// AttributeFabricClusterUUID is the multi-node NVLink fabric (GB200) that the GPU
	// has joined.
	AttributeFabricClusterUUID = "fabricClusterUUID" // string
	// AttributeFabricCliqueID is the clique of that fabric.
	AttributeFabricCliqueID = "fabricCliqueID" // int
	// AttributeECCEnabled is true if the GPU's memory corrects errors.
	AttributeECCEnabled = "eccEnabled" // bool: true
	// AttributePersistenceMode is true if the driver keeps the GPU initialized.
	AttributePersistenceMode = "persistenceMode" // bool: true
	// AttributeAddressingMode is the addressing mode of the GPU.
	AttributeAddressingMode = "addressingMode" // string: HMM
	// AttributeSharing says whether MPS limits a share of the device: [SharedByMPS] or
	// [SharedByNone].
	AttributeSharing = "sharing" // string: mps
	// AttributeEnforcement is how strictly a share is limited: the weaker of
	// [AttributeMemoryEnforcement] and [AttributeComputeEnforcement].
	AttributeEnforcement = "enforcement" // string: cooperative
	// AttributeMemoryEnforcement is how strictly the memory of a share is limited:
	// [EnforcementDriver], [EnforcementCooperative] or [EnforcementNone].
	AttributeMemoryEnforcement = "memoryEnforcement" // string: driver
	// AttributeComputeEnforcement is how strictly the compute of a share is limited:
	// [EnforcementDaemon], [EnforcementCooperative] or [EnforcementNone].
	AttributeComputeEnforcement = "computeEnforcement" // string: daemon
	// AttributeProfile is the MIG profile; only on MIG devices.
	AttributeProfile = "profile" // string: 1g.10gb
	// AttributeParentUUID is the UUID of the GPU; only on MIG devices.
	AttributeParentUUID = "parentUUID" // string: GPU-8f5e…
)

// The attributes that only the metadata of a container has. One about a share is absent if
// the claim has no such limit.
const (
	// MetadataCPUs is the CPUs of the GPU's NUMA node; absent if longer than 64 characters.
	MetadataCPUs = "cpus" // string: 0-55,112-167
	// MetadataNICs is the network adapters nearest to the GPU, by their PCI addresses:
	// adapters on its PCIe switch, or else below its root port.
	MetadataNICs = "nics" // list of strings: 0000:18:00.0
	// MetadataRDMADevices is the RDMA devices of these adapters.
	MetadataRDMADevices = "rdmaDevices" // list of strings: mlx5_0
	// MetadataShareMemory is the memory that the scheduler has promised.
	MetadataShareMemory = "shareMemory" // string: 10Gi
	// MetadataShareCompute is the compute that the scheduler has promised, in
	// percent of the SMs.
	MetadataShareCompute = "shareCompute" // int: 25
	// MetadataShareProcesses is the number of processes among which memory and
	// compute are divided.
	MetadataShareProcesses = "shareProcesses" // int: 2
	// MetadataProcessThreadPercentage is the part of the SMs that each process can
	// use, in percent.
	MetadataProcessThreadPercentage = "processThreadPercentage" // int: 12
	// MetadataProcessMemoryLimit is the memory that each process can use, its
	// context included.
	MetadataProcessMemoryLimit = "processMemoryLimit" // string: 5Gi
	// MetadataShareContainers is the number of containers among which the memory is
	// divided.
	MetadataShareContainers = "shareContainers" // int: 1
	// MetadataContainerMemoryLimit is the memory that the driver admits to each
	// container, contexts included.
	MetadataContainerMemoryLimit = "containerMemoryLimit" // string: 10Gi
	// MetadataTimeSlice is the interval that the claim's configuration names.
	MetadataTimeSlice = "timeSlice" // string: Short
)

// The environment variables of a container for each GPU of its claims. The bus and the
// device of the GPU follow the name, as in "GPU_CPUS_1B_00", so claims of one container set
// different variables, or one variable to the same value. A variable is absent if its value
// is not known.
const (
	// EnvironmentNUMANode is the NUMA node of the GPU.
	EnvironmentNUMANode = "GPU_NUMA_NODE" // 0
	// EnvironmentCPUs is the CPUs of that NUMA node.
	EnvironmentCPUs = "GPU_CPUS" // 0-55,112-167
	// EnvironmentNICs is the network adapters nearest to the GPU, by their PCI addresses:
	// adapters on its PCIe switch, or else below its root port.
	EnvironmentNICs = "GPU_NICS" // 0000:18:00.0
	// EnvironmentRDMADevices is the RDMA devices of these adapters.
	EnvironmentRDMADevices = "GPU_RDMA_DEVICES" // mlx5_0
)

// The values of [AttributeMIGMode].
const (
	MIGModeEnabled  = "Enabled"
	MIGModeDisabled = "Disabled"
)

// The values of [AttributeSharing].
const (
	// SharedByMPS is the value if MPS holds shares.
	SharedByMPS = "mps"
	// SharedByTimeSlice is the value for a claim of time slices. No device is
	// published with it.
	SharedByTimeSlice = "timeslice"
	// SharedByNone is the value if nothing holds shares.
	SharedByNone = "none"
)

// Enforcement is how firmly a share is held to its limits. It is the value of
// [AttributeEnforcement].
type Enforcement string

// The ways to enforce limits, the strictest first.
const (
	// EnforcementDriver limits containers, whatever their processes do: the driver
	// refuses memory above the limit.
	EnforcementDriver Enforcement = "driver"
	// EnforcementDaemon limits all processes that use MPS: the daemon has a limit for
	// each share, which processes that are not root cannot raise. A process that
	// avoids MPS is not limited, unless the node has exclusive compute.
	EnforcementDaemon Enforcement = "daemon"
	// EnforcementCooperative limits processes that keep their environment. A process
	// that drops it gets what the largest share of the device has.
	EnforcementCooperative Enforcement = "cooperative"
	// EnforcementNone limits nothing.
	EnforcementNone Enforcement = "none"
)

// The capacities of devices.
const (
	// CapacityMemory is the memory of the device in bytes. A request is rounded to
	// whole Mi; without an amount it gets all memory of a device, and none of a time
	// slice.
	CapacityMemory = "memory" // gpu, mig, timeslice
	// CapacityCompute is the compute of the GPU in percent of its SMs. A request
	// names whole percents; without an amount it reserves none.
	CapacityCompute = "compute" // gpu
	// CapacitySlots is the number of slots of the GPU. A request without an amount
	// gets one.
	CapacitySlots = "slots" // timeslice
	// CapacitySeats is the number of seats of the GPU. A request without an amount
	// gets one.
	CapacitySeats = "seats" // seat
)

// The taints of devices. All have the effect NoSchedule.
const (
	// TaintUnhealthy marks a GPU that has failed, does not answer, or has not joined
	// its NVSwitch fabric. Its value is the first reason.
	TaintUnhealthy = GroupName + "/unhealthy" // such as "xid-79", "recovery-gpu-reset", "lost", "fabric-not-ready"
	// TaintMIGMode marks a GPU that an administrator has switched to MIG mode. In that
	// mode it cannot be used as a whole. A mode that claims enable has no taint.
	TaintMIGMode = GroupName + "/mig-mode" // [MIGModeTaintEnabled]
	// TaintComputeMode marks a device that the GPU's compute mode, which an
	// administrator has set, keeps from being used.
	TaintComputeMode = GroupName + "/compute-mode" // [ComputeModeTaintProhibited], [ComputeModeTaintExclusive]
	// TaintWithdrawn marks a device that the node no longer offers, while claims hold
	// it. It also marks a device that is no longer offered in shares. Its value is the
	// word of the offer, or [WithdrawnGPU].
	TaintWithdrawn = GroupName + "/withdrawn" // [OfferShare], [OfferMIG], [OfferTimeSlice], [OfferSeat]
	// TaintInUse marks a device that is in use although the cluster counts it as free. It
	// also marks a device that is used by another pod than those of the claims that hold
	// it.
	TaintInUse = GroupName + "/in-use" // [InUseTaintDevicePlugin], [InUseTaintUnneededClaim], [InUseTaintForeignProcess]
	// TaintCordoned marks a device that an administrator has taken out of use with
	// "kubectl gpu cordon". DeviceTaintRules set it; the agent does so too.
	TaintCordoned = GroupName + "/cordoned" // [CordonedByAdministrator]
	// TaintRoom marks a device that "kubectl gpu room" keeps for a pod whose claims tolerate it.
	TaintRoom = GroupName + "/room" // the value that the claims name, or the UID of the pod
)

// The values of taints.
const (
	// WithdrawnGPU is the value of [TaintWithdrawn] for a GPU as a whole, whose MIG
	// layout offers only partitions.
	WithdrawnGPU = "gpu"
	// MIGModeTaintEnabled is the value of [TaintMIGMode].
	MIGModeTaintEnabled = "enabled"
	// ComputeModeTaintProhibited is the value of [TaintComputeMode] if nothing can
	// compute on the GPU.
	ComputeModeTaintProhibited = "prohibited"
	// ComputeModeTaintExclusive is the value of [TaintComputeMode] if one process at
	// a time can compute on the GPU.
	ComputeModeTaintExclusive = "exclusive-process"
	// InUseTaintDevicePlugin is a value of [TaintInUse]: a device plugin serves the
	// device to a pod. The kubelet has allocated it to the pod.
	InUseTaintDevicePlugin = "device-plugin"
	// InUseTaintUnneededClaim is a value of [TaintInUse]: an obsolete claim holds the
	// device. The cluster has forgotten the claim or allocated it elsewhere, and its
	// processes may still run.
	InUseTaintUnneededClaim = "unneeded-claim"
	// InUseTaintForeignProcess is a value of [TaintInUse]: a pod without a claim for
	// the device computes on it.
	InUseTaintForeignProcess = "foreign-process"
	// CordonedByAdministrator is the value of [TaintCordoned].
	CordonedByAdministrator = "administrator"
)

// What a node can offer besides whole GPUs: the words of the agent's flag --offer,
// of [LabelOffer], and the values of [TaintWithdrawn].
const (
	// OfferShare offers shares of GPUs and MIG devices.
	OfferShare = "share"
	// OfferMIG offers MIG devices.
	OfferMIG = "mig"
	// OfferTimeSlice offers time slices of GPUs.
	OfferTimeSlice = "timeslice"
	// OfferSeat offers equal seats of GPUs.
	OfferSeat = "seat"
	// OfferMonitor offers all GPUs together to monitoring agents.
	OfferMonitor = "monitor"
)

// Labels of a node, which agents follow while they run.
const (
	// LabelConfig is the name of the node's configuration in the file of the agent's flag
	// --node-configs.
	LabelConfig = GroupName + "/config" // Node
	// LabelOffer is the offer of the node besides whole GPUs, with dots between the
	// words: "share.mig". It overrides the agent's flag --offer and the offer of
	// [LabelConfig].
	LabelOffer = GroupName + "/offer" // Node
	// LabelMIGConfig is the label with which NVIDIA's MIG manager names the layout of the
	// node's GPUs. It overrides the layout of [LabelConfig] if the agent's flag
	// --mig-config-label is set.
	LabelMIGConfig = "nvidia.com/mig.config" // Node
)

// The labels of DeviceClasses, which the chart's admission policies follow.
const (
	// LabelType says which type of device the class selects.
	LabelType = GroupName + "/type" // DeviceClass
	// LabelShares says whether requests must ("only") or must not ("none") name an
	// amount.
	LabelShares = GroupName + "/shares" // DeviceClass
	// LabelMaxMemory is the most memory that a request may name.
	LabelMaxMemory = GroupName + "/max-memory" // DeviceClass
	// LabelMaxCompute is the most compute that a request may name, in percent of the
	// SMs.
	LabelMaxCompute = GroupName + "/max-compute" // DeviceClass
	// LabelStrategies is the strategies that a configuration may have, with dots
	// between them.
	LabelStrategies = GroupName + "/strategies" // DeviceClass
)

// LabelCordon is the name of the GPU that a rule of "kubectl gpu cordon" takes out of use.
// The rule selects one device of it.
const LabelCordon = GroupName + "/cordon" // DeviceTaintRule

// AnnotationCordonReason is the reason for which an administrator has taken a GPU out of
// use, in words.
const AnnotationCordonReason = GroupName + "/cordon-reason" // DeviceTaintRule

// LabelRoom is the UID of the pod for which a rule of "kubectl gpu room" keeps a device.
const LabelRoom = GroupName + "/room-for" // DeviceTaintRule

// AnnotationRoomUntil is the time at which a rule of "kubectl gpu room" is obsolete.
const AnnotationRoomUntil = GroupName + "/room-until" // DeviceTaintRule

// ConditionReady is the condition of a device in status.devices of a claim: whether the device
// is prepared. Its reason is a word of the event texts.
const ConditionReady = "Ready" // ResourceClaim

// ConditionForeignProcess is a condition in a claim's status.devices: a foreign process
// computes on the device. The process belongs to a pod that has no claim for the device.
// Its reason is [ReasonNoClaim].
const ConditionForeignProcess = "ForeignProcess" // ResourceClaim

// ReasonNoClaim is the reason of [ConditionForeignProcess].
const ReasonNoClaim = "NoClaim"

// ConditionMemoryUnlimited is a condition in a claim's status.devices: a container computes
// without its memory limit. The limit is set by the claim for the device. It is absent if
// there is no such container or no such limit.
const ConditionMemoryUnlimited = "MemoryUnlimited" // ResourceClaim

const (
	// ReasonNoHook is the reason of [ConditionMemoryUnlimited] if it is true: the container
	// runtime has not run the hook that sets the limit.
	ReasonNoHook = "NoHook"
	// ReasonProcessesUnknown is the reason of [ConditionMemoryUnlimited] if it is unknown.
	ReasonProcessesUnknown = "ProcessesUnknown"
)

// ConditionExternallyAllocated is a condition in a claim's status.devices: a device plugin
// has given the device to a pod. Its reason is [ReasonDevicePlugin].
const ConditionExternallyAllocated = "ExternallyAllocated" // ResourceClaim

// ReasonDevicePlugin is the reason of [ConditionExternallyAllocated].
const ReasonDevicePlugin = "DevicePlugin"

// ConditionOtherDriver is a condition in a claim's status.devices: another driver of the
// same name serves the node. Its reason is [ReasonSameName].
const ConditionOtherDriver = "OtherDriver" // ResourceClaim

// ReasonSameName is the reason of [ConditionOtherDriver].
const ReasonSameName = "SameName"

// The conditions of a share in a claim's status.devices for which its programs do not compute. Each
// has one reason. An event with the condition as its reason says the same.
const (
	// ConditionShareInterrupted means that the MPS daemon of the share or its server ended. The time
	// of the condition is when that happened, and the claim had the share. The programs that ran then
	// fail.
	ConditionShareInterrupted = "ShareInterrupted" // ResourceClaim
	ReasonMPSEnded            = "MPSEnded"
	// ConditionShareUnserved means that the MPS daemon of the share does not run.
	ConditionShareUnserved = "ShareUnserved" // ResourceClaim
	ReasonMPSNotRunning    = "MPSNotRunning"
	// ConditionShareWaits means that a program waits until the programs of another user have ended.
	ConditionShareWaits = "ShareWaits" // ResourceClaim
	ReasonOtherUser     = "OtherUser"
)

const (
	// ReasonGPUUnhealthy is the reason of a warning on a claim and its pods: a GPU of the
	// claim has failed.
	ReasonGPUUnhealthy = "GPUUnhealthy"
	// ReasonGPUHealthy is the reason of the event that follows when the GPU is healthy again.
	ReasonGPUHealthy = "GPUHealthy"
	// ReasonPrepareRetried is the reason of a warning on a claim and its pods: the claim waits for
	// its device. The condition [ConditionReady] is false meanwhile.
	ReasonPrepareRetried = "PrepareRetried"
	// ReasonUnprepareRetried is the reason of a warning on a claim and its pods, and of its condition
	// [ConditionReady]: the claim has ended, and keeps its devices because something uses them.
	ReasonUnprepareRetried = "UnprepareRetried"
	// ReasonProgramFault is the reason of a warning on a pod: its program made a fault on the GPU.
	// If the name of the pod is not known, it is on the claim.
	ReasonProgramFault = "ProgramFault"
	// ReasonSharedFault is the reason of a warning on a pod: a fault of another program ended the
	// pod's programs, because MPS shares the GPU. If the name of the pod is not known, it is on the claim.
	ReasonSharedFault = "SharedFault"
)

// AnnotationViewerAccount is the name of the service account for reading facts about the
// node from the agent. "kubectl gpu doctor" uses its tokens. The chart sets it.
const AnnotationViewerAccount = GroupName + "/viewer-account" // Pod of the agent

// AnnotationDriverNamespace is the namespace of the driver's workloads, for programs that send
// tokens to agents: only administrators write admission policies, and any tenant can give its
// pods the labels of the agents. The chart sets it.
const AnnotationDriverNamespace = GroupName + "/driver-namespace" // ValidatingAdmissionPolicy

// AnnotationRepaired says which GPUs an administrator has repaired: a fault that was
// reported up to a time has ended. Its value is a list of "DEVICE@TIME" with commas
// between them: the name of a GPU's device, its UUID or "all", and a time as in
// RFC 3339, such as "gpu-1b-00@2026-01-31T12:00:00Z". The agent may not write nodes, so
// the annotation stays. It ends no fault that is reported later.
const AnnotationRepaired = GroupName + "/repaired" // Node

// AnnotationCordoned says which GPUs an administrator has taken out of use. Its value is a list
// of the names of their devices, such as "gpu-1b-00", with commas between them. The agent taints
// all devices of these GPUs, also new ones. "kubectl gpu cordon" and
// "kubectl gpu uncordon" write it.
const AnnotationCordoned = GroupName + "/cordoned" // Node
