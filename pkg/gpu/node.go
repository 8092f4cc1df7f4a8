// SPDX-License-Identifier: Apache-2.0

package gpu

import "fmt"

// Version is a two-part version such as CUDA's 12.8 or a compute capability of
// 9.0. The zero value means unknown.
type Version struct {
	Major, Minor int
}

// IsZero reports whether the version is unknown.
func (v Version) IsZero() bool { return v == Version{} }

// Node is the result of one scan of a node's GPUs. A field that the hardware or
// the driver does not report has its zero value and is never invented.
type Node struct {
	// DriverVersion as NVML prints it, such as "570.86.15".
	DriverVersion string
	// CUDADriverVersion is the newest CUDA release the driver supports.
	CUDADriverVersion Version
	// GPUs that answered, in ascending order of their PCI address.
	GPUs []GPU
	// Unreadable are the GPUs that the driver lists but that do not answer.
	Unreadable []Unreadable
	// Incomplete says which facts of GPUs that answer cannot be read; nil if none.
	Incomplete error
}

// Unreadable is a GPU that the driver counts but that cannot be read.
type Unreadable struct {
	// Index is NVML's index in this boot.
	Index int
	// Address is nil if the PCI address could not be read either.
	Address *PCIAddress
	// Err says why; it wraps one of the sentinel errors and does not name the GPU.
	Err error
}

// Problem returns Err after the name of the GPU: its PCI address, or its index if
// the address is unknown.
func (u Unreadable) Problem() error {
	if u.Address == nil {
		return fmt.Errorf("GPU %d: %w", u.Index, u.Err)
	}
	return fmt.Errorf("GPU at %s: %w", u.Address, u.Err)
}

// WhyUnreadable returns why the GPU at an address is among those that do not answer, or may be; nil if it is not. One
// that does not tell its address may be any.
func WhyUnreadable(all []Unreadable, address PCIAddress) error {
	var maybe error
	for _, u := range all {
		switch {
		case u.Address != nil && *u.Address == address:
			return u.Err
		case u.Address == nil && maybe == nil:
			maybe = fmt.Errorf("it may be GPU %d, which does not tell its address: %w", u.Index, u.Err)
		}
	}
	return maybe
}

// GPU is one physical GPU.
type GPU struct {
	Address PCIAddress
	// UUID as NVML prints it: "GPU-" and 36 characters.
	UUID string
	// Index is NVML's index, for people only. It can change with a reboot or a lost
	// GPU.
	Index int
	// Minor is the N of /dev/nvidiaN in this boot.
	Minor int
	// PCIDevice and PCISubsystem are PCI IDs: of the device or subsystem in the upper 16
	// bits, and of its vendor in the lower ones, 0x233010de.
	PCIDevice, PCISubsystem uint32

	ProductName       string  // "NVIDIA H100 80GB HBM3"
	Brand             string  // "Nvidia", "Tesla", "GeForce", ...
	Architecture      string  // "Hopper", "Ampere", ...
	ComputeCapability Version // 9.0
	MemoryBytes       uint64  // the total of NVML's memory info v1
	// ReservedBytes is the part of MemoryBytes that the driver and the firmware keep
	// for themselves. It is 0 if NVML does not report it. Source: NVML's memory info
	// v2.
	ReservedBytes   uint64
	Multiprocessors int // SMs; 0 if unknown

	// NUMANode is nil if the platform does not report one.
	NUMANode *int
	// NearNUMANodes are NUMANode and then the nearest other nodes with CPUs of its
	// socket. The latter are in ascending order. It is nil if NUMANode is.
	NearNUMANodes []int
	// CPUs of NUMANode in the kernel's format of lists, "0-55,112-167"; empty if unknown.
	CPUs string
	// PCIeRoot is the root complex, "pci0000:15"; empty if unknown.
	PCIeRoot string
	// PCIeSwitch is the address of the upstream port of the GPU's PCIe switch,
	// "0000:16:00.0". If the outermost switch is another one, its address precedes it:
	// "0000:02:00.0/0000:16:00.0". It is empty without a switch, or if unknown.
	PCIeSwitch string
	// NICs are the nearest network adapters below PCIeRoot, in order of the address.
	NICs []NIC

	MIG MIG
	// Links is nil if they were not read.
	Links []Link
	// NVLinkVersion is the version of the links, 4.0 on an H100.
	NVLinkVersion Version
	// Fabric is nil on GPUs outside an NVLink fabric with a fabric manager.
	Fabric *Fabric
	// FabricState is the state of the GPU's registration with its NVSwitch fabric. It
	// is empty on a GPU without a fabric.
	FabricState FabricState
	// Recovery is the action that the driver requests to bring the GPU back into
	// service. It is empty if NVML does not report it. Source: NVML field 230.
	Recovery RecoveryAction

	ECCEnabled      *bool
	PersistenceMode *bool
	// AddressingMode is "HMM", "ATS" or "None"; empty if the driver does not
	// report it.
	AddressingMode string
	// ComputeMode is set by an administrator or by claims.
	ComputeMode ComputeMode

	// MemoryLimits reports whether the driver can limit the memory that a container has
	// of the GPU. If not, NoMemoryLimits describes why, and how an administrator
	// changes that.
	MemoryLimits   bool
	NoMemoryLimits string
}

// NIC is a network adapter.
type NIC struct {
	Address PCIAddress
	// RDMADevices are its RDMA devices in order, "mlx5_0".
	RDMADevices []string
}

// NearNICs returns the PCI addresses and the RDMA devices of the GPU's network adapters.
func (g GPU) NearNICs() (addresses, rdma []string) {
	for _, nic := range g.NICs {
		addresses, rdma = append(addresses, nic.Address.String()), append(rdma, nic.RDMADevices...)
	}
	return addresses, rdma
}

// ComputeMode says which processes may open contexts on a GPU.
type ComputeMode string

// The compute modes of NVML. The empty mode means unknown.
const (
	ComputeModeDefault          ComputeMode = "Default"
	ComputeModeProhibited       ComputeMode = "Prohibited"
	ComputeModeExclusiveProcess ComputeMode = "ExclusiveProcess"
)

// MIG is the Multi-Instance GPU state of a GPU.
type MIG struct {
	// Capable reports whether the GPU can be partitioned at all.
	Capable bool
	// Enabled is the current mode, PendingEnabled the one after the next reset.
	Enabled, PendingEnabled bool
	// Profiles are in the order of their NVML profile ID. Some drivers do not
	// list them while MIG is off.
	Profiles []ProfileInfo
	// Partitions that exist now, ordered by placement.
	Partitions []Partition
}

// ProfileInfo is a GPU instance profile with all its placements.
type ProfileInfo struct {
	Profile Profile
	// ID is NVML's profile identifier (NVML_GPU_INSTANCE_PROFILE_*).
	ID              int
	MemoryBytes     uint64
	Multiprocessors int
	// ComputeSlices of an instance.
	ComputeSlices int
	// Copy engines, decoders, encoders, JPEG engines and OFAs of an instance.
	CopyEngines, Decoders, Encoders, JPEGs, OFAs int
	// MaxInstances of the profile on an empty GPU.
	MaxInstances int
	Placements   []Placement
}

// Placement is a run of memory slices on a GPU.
type Placement struct {
	Start, Size int // in memory slices
}

// Partition is a MIG device that exists: a GPU instance with one compute
// instance that spans it.
type Partition struct {
	Profile   Profile
	Placement Placement
	// UUID of the MIG device: "MIG-" and 36 characters; empty while the
	// instance has no compute instance.
	UUID string
	// GPUInstanceID and ComputeInstanceID are NVML's, in this boot.
	GPUInstanceID, ComputeInstanceID int
}

// Link is one NVLink of a GPU.
type Link struct {
	// Number of the link on this GPU, from 0.
	Number int
	// Active is false for a link that is down; its remote end may be unknown.
	Active bool
	// Remote is the kind of device at the other end.
	Remote LinkRemote
	// RemoteAddress is the PCI address at the other end; nil if not reported.
	RemoteAddress *PCIAddress
}

// LinkRemote is the kind of device at the far end of an NVLink.
type LinkRemote string

// The far ends that NVML reports. The empty value means unknown.
const (
	RemoteGPU    LinkRemote = "GPU"
	RemoteSwitch LinkRemote = "Switch"
	RemoteCPU    LinkRemote = "CPU" // IBM POWER NPUs, Grace
)

// Fabric identifies the multi-node NVLink fabric a GPU has joined.
type Fabric struct {
	ClusterUUID string
	CliqueID    uint32
}

// FabricState is the state of a GPU's registration with its NVSwitch fabric. CUDA
// fails to initialise (error 802) until it is [FabricCompleted].
type FabricState string

// The fabric states of NVML. FabricFailed is a completed registration whose
// status is an error.
const (
	FabricNotStarted FabricState = "not-started"
	FabricInProgress FabricState = "in-progress"
	FabricCompleted  FabricState = "completed"
	FabricFailed     FabricState = "failed"
)

// RecoveryAction is an action on a GPU that NVML requests from an administrator.
type RecoveryAction string

// The recovery actions of NVML's field 230, in its order.
const (
	RecoveryNone          RecoveryAction = "none"
	RecoveryGPUReset      RecoveryAction = "gpu-reset"
	RecoveryNodeReboot    RecoveryAction = "node-reboot"
	RecoveryDrainP2P      RecoveryAction = "drain-p2p"
	RecoveryDrainAndReset RecoveryAction = "drain-and-reset"
	RecoveryIMEXDomain    RecoveryAction = "recover-imex-domain"
	RecoveryBusReset      RecoveryAction = "bus-reset"
	RecoverySystemReboot  RecoveryAction = "system-reboot"
)

// EventKind is the kind of a hardware event.
type EventKind string

// The hardware events that start a new scan.
const (
	EventXID  EventKind = "xid"  // an XID error; see Event.XID
	EventLink EventKind = "link" // an NVLink changed its state
	EventLost EventKind = "lost" // a GPU stopped answering
	EventECC  EventKind = "ecc"  // an uncorrectable ECC error
	// EventRecovery: the driver requests another recovery action; see
	// GPU.Recovery.
	EventRecovery EventKind = "recovery"
	// EventAnswer is sent by this program: a GPU has answered after its timeout, or
	// has stopped answering during an operation. The next scan finds out which.
	EventAnswer EventKind = "answer"
)

// Event is an event that the hardware reported.
type Event struct {
	Kind EventKind
	// UUID of the GPU; empty if the event concerns the node.
	UUID string
	// XID is the number in NVIDIA's XID catalogue; 0 if none was reported.
	XID uint64
}
