// SPDX-License-Identifier: Apache-2.0

// Package ports declares what the life of a claim needs of its node: the parts that act on
// GPUs, and their inventory. Packages of the agent implement them.
package ports

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Node has the parts of a node with which claims are prepared. BootID, Inventory and CDI are required.
type Node struct {
	// BootID names this boot of the machine. Devices in the records of another
	// boot no longer exist.
	BootID    string
	Inventory Inventory
	CDI       CDI
	// MonitorNodes returns the container paths of the device nodes for monitoring.
	// Monitoring needs them in addition to the nodes of the GPUs. It is nil if
	// monitoring needs none.
	MonitorNodes func() ([]string, error)
	// Partitioning is nil on a node that prepares no MIG devices.
	Partitioning *Partitioning
	// MPS is nil on a node without a supervisor of MPS daemons. Shares are plain on
	// such a node.
	MPS MPS
	// Limits is nil on a node on which no driver limits the memory of containers.
	Limits *MemoryLimits
	// TimeSlicing is nil on a node that changes no time slices.
	TimeSlicing *TimeSlicing
	// ExclusiveCompute is nil on a node that changes no compute modes.
	ExclusiveCompute *ExclusiveCompute
}

// Inventory lists the GPUs of this node as last seen. It is read under locks too, so
// it waits for nothing but, at the start, the first scan of the GPUs.
type Inventory interface {
	// GPU returns an error that wraps [gpu.ErrNotFound], [gpu.ErrNotReady] before
	// the first scan, or [gpu.ErrLost].
	GPU(ctx context.Context, address gpu.PCIAddress) (use.GPU, error)
	// GPUs returns the GPUs that answer, in order of the address. The error wraps
	// [gpu.ErrNotReady] while there are none.
	GPUs(ctx context.Context) ([]use.GPU, error)
}

// CDI keeps the specs from which a container runtime learns of a claim's devices. They are
// also the witnesses of lost records. All methods may be called for different claims at the
// same time.
type CDI interface {
	// Write creates or replaces the claim's spec. It returns the qualified device IDs
	// in the order of the injections.
	Write(ctx context.Context, claim types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error)
	// Close creates or replaces the claim's spec without a check of its device nodes. It removes a spec that it cannot
	// replace.
	Close(ctx context.Context, claim types.UID, owner types.NamespacedName, injections []gpu.Injection) error
	// Remove deletes the spec of a claim and the temporary files of crashed writes. It
	// succeeds if there are none.
	Remove(ctx context.Context, claim types.UID) error
	// List returns the claims for which there is a spec or part of one.
	List(ctx context.Context) ([]types.UID, error)
	// Read returns the owner of a spec and its injections with their IDs and
	// annotations. The error wraps [gpu.ErrNotFound] or [gpu.ErrCorrupt].
	Read(ctx context.Context, claim types.UID) (owner types.NamespacedName, injections []gpu.Injection, err error)
}

// MIG makes partitions of GPUs. All methods may be called for different GPUs at the
// same time.
type MIG interface {
	// MIG reads the GPU. An inventory may be older, and leave out what claims have
	// made.
	MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error)
	// MIGMode returns the mode of the GPU now and the one after its next reset. Both
	// are off on a GPU without MIG. It is much cheaper than MIG.
	MIGMode(ctx context.Context, address gpu.PCIAddress) (on, pending bool, err error)
	// SetMIGMode leaves nothing pending when it fails, unless the process ends
	// meanwhile. The error wraps [gpu.ErrInUse] while something uses the GPU. It is
	// idempotent.
	SetMIGMode(ctx context.Context, address gpu.PCIAddress, on bool) error
	// CancelPendingMIGMode takes back a mode that waits for a reset. It succeeds if
	// nothing is pending. The caller knows that no administrator has set the mode.
	CancelPendingMIGMode(ctx context.Context, address gpu.PCIAddress) error
	// CreatePartition leaves nothing behind when it fails. It succeeds if exactly
	// that partition is there.
	CreatePartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) (gpu.Partition, error)
	// DestroyPartition is idempotent; the error wraps [gpu.ErrInUse] while a
	// process uses the partition.
	DestroyPartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) error
}

// Partitioning holds the parts that prepare MIG devices. All fields except Static and Keep
// are required.
type Partitioning struct {
	MIG MIG
	// CapabilityNodes returns the container paths of a MIG device's capability nodes.
	// They belong to a GPU instance and a compute instance.
	CapabilityNodes func(g gpu.GPU, gpuInstance, computeInstance int) ([]string, error)
	// Openers returns the processes that have one of the device nodes open, by PID. It
	// omits processes that cannot be read.
	Openers func(nodes []string) (map[int]gpu.Task, error)
	// Modes lists the GPUs whose MIG mode was switched on by claims. It is the same
	// for all processes that share the records of claims.
	Modes *store.Store
	// Kept has the partitions that stay without claims. It is shared as Modes is.
	Kept *store.Store
	// Keep reports whether the partition of a device stays when no claim uses it. The
	// hardware admits all of these together. Keep is nil if none stays.
	Keep func(kind.Name) bool
	// Static uses partitions as an administrator has made them, and neither makes
	// nor destroys any. What claims had made before stays theirs.
	Static bool
}

// MPS runs MPS control daemons. Its errors wrap [gpu.ErrNotReady] if it is out of
// reach for a while, and [gpu.ErrTimeout] if it does not answer in time or before ctx
// ends.
type MPS interface {
	// EnsureMPS starts a daemon, or changes the ceilings or namespaces of a running one. It
	// returns when the daemon answers and has these settings. It is idempotent. The error
	// wraps [gpu.ErrInUse] if a daemon of the name runs for other devices or with the other
	// protocol; it must be stopped first.
	EnsureMPS(ctx context.Context, daemon gpu.MPSDaemon) (gpu.MPSDirs, error)
	// StopMPS ends the daemon and removes its folders. It succeeds if the daemon is
	// not running.
	StopMPS(ctx context.Context, name string) error
	// MPSDaemons lists the daemons by name.
	MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error)
	// MultiUser reports whether the daemons serve clients of several users at a
	// time.
	MultiUser(ctx context.Context) (bool, error)
}

// TimeSlicing holds the parts that change time slices. Both are required.
type TimeSlicing struct {
	Slices TimeSlices
	// Intervals has the time slices from before claims changed them. It is the same for
	// all processes that share the records of claims.
	Intervals *store.Store
}

// TimeSlices reads and changes how long processes compute on a GPU before the next
// one's slot. Both methods may be called for different GPUs at the same time;
// SetTimeSlice is idempotent.
type TimeSlices interface {
	TimeSlice(ctx context.Context, address gpu.PCIAddress) (gpu.TimeSlice, error)
	SetTimeSlice(ctx context.Context, address gpu.PCIAddress, slice gpu.TimeSlice) error
}

// ExclusiveCompute holds the parts that put GPUs with MPS shares into EXCLUSIVE_PROCESS.
// All fields except Off are required.
type ExclusiveCompute struct {
	Modes ComputeModes
	// Changed lists the GPUs whose compute mode was changed by claims. It is the same
	// for all processes that share the records of claims.
	Changed *store.Store
	// Off leaves the compute mode alone for new claims. What earlier claims have
	// changed is still set back with the last of them.
	Off bool
}

// ComputeModes reads and changes which processes may open contexts on a GPU. Both
// methods may be called for different GPUs at the same time; SetComputeMode is
// idempotent.
type ComputeModes interface {
	ComputeMode(ctx context.Context, address gpu.PCIAddress) (gpu.ComputeMode, error)
	SetComputeMode(ctx context.Context, address gpu.PCIAddress, mode gpu.ComputeMode) error
}

// MemoryLimits holds the parts that limit the memory of containers. Both are required.
type MemoryLimits struct {
	// Folder is the folder in which hooks count containers. It is the same for all
	// processes that share the records of claims.
	Folder MemoryLimitFolder
	// Hook returns the hook that limits the memory of a container on the GPU at the
	// address. device is a CDI device, for that number of containers at a time. The
	// error wraps [gpu.ErrNotSupported] if this agent has no hook.
	Hook func(device string, address gpu.PCIAddress, bytes uint64, containers int) (gpu.Hook, error)
}

// MemoryLimitFolder has the limits of containers. Its methods are idempotent and may be
// called for different devices at the same time.
type MemoryLimitFolder interface {
	// Open lets containers use a CDI device.
	Open(device string) error
	// Close ends that. It succeeds if the device is not open.
	Close(device string) error
	// Devices lists the open devices in ascending order.
	Devices() ([]string, error)
}

// Check returns an error if a required part is missing.
func (n Node) Check() error {
	missing := func(part string) error { return errors.New("an option of " + part + " is missing") }
	switch {
	case n.BootID == "" || n.Inventory == nil || n.CDI == nil:
		return missing("the node")
	case n.Partitioning != nil && (n.Partitioning.MIG == nil || n.Partitioning.CapabilityNodes == nil || n.Partitioning.Openers == nil || n.Partitioning.Modes == nil || n.Partitioning.Kept == nil):
		return missing("partitioning")
	case n.Limits != nil && (n.Limits.Folder == nil || n.Limits.Hook == nil):
		return missing("memory limits")
	case n.TimeSlicing != nil && (n.TimeSlicing.Slices == nil || n.TimeSlicing.Intervals == nil):
		return missing("time slicing")
	case n.ExclusiveCompute != nil && (n.ExclusiveCompute.Modes == nil || n.ExclusiveCompute.Changed == nil):
		return missing("exclusive compute")
	}
	return nil
}
