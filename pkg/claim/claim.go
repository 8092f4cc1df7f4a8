// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/step"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// Ref names a claim.
type Ref = journal.Ref

// What a [Manager] works with.
type (
	// Inventory lists the GPUs of this node as last seen.
	Inventory = step.Inventory
	// CDI keeps the specs from which a container runtime learns of a claim's devices.
	CDI = step.CDI
	// MIG makes partitions of GPUs.
	MIG = step.MIG
	// Partitioning is what it takes to prepare MIG devices.
	Partitioning = step.Partitioning
	// MPS runs MPS control daemons.
	MPS = step.MPS
	// TimeSlicing reads and changes the time slices of GPUs.
	TimeSlicing = step.TimeSlicing
)

// Device is one device of a prepared claim.
type Device struct {
	// Request as in the allocation result: "gpu", or "gpu/big" where it was a
	// subrequest that could be met.
	Request    string
	Pool, Name string
	// ShareID tells allocations of one device apart; nil where the device
	// belongs to one claim at a time.
	ShareID *types.UID
	Kind    kind.Kind
	// Address of the GPU; unset for a device that stands for all GPUs.
	Address gpu.PCIAddress
	// UUID of the GPU or, once it is made, of the MIG device; empty for all GPUs
	// of the node.
	UUID string
	// CDIDeviceIDs are fully qualified.
	CDIDeviceIDs []string
	// Share says how the device is shared; nil where the claim has it to itself
	// and nothing is limited.
	Share *Share
	// Attributes as published; from [Manager.Prepare] only.
	Attributes map[string]resourceapi.DeviceAttribute
}

// Observer is told of every step, for metrics. It must not block.
type Observer interface {
	StepDone(step string, undo bool, took time.Duration, err error)
}

// Options of a [Manager]. Those up to CDI are needed.
type Options struct {
	// DriverName selects the allocation results and configurations that are
	// ours.
	DriverName string
	// PoolName is the pool that this node publishes.
	PoolName string
	// BootID names this boot of the machine. What records of another boot
	// speak of is gone.
	BootID string
	// LockFile is made where it is missing. It is the same for all processes that
	// share Records.
	LockFile string
	Records  *store.Store

	Inventory Inventory
	CDI       CDI
	// Occupancy is nil on a node whose GPUs cannot be asked who uses them.
	Occupancy *Occupancy
	// BeforePrepare brings what the Inventory knows up to date for a call of
	// [Manager.Prepare], within the time of that call; nil if it needs nothing.
	BeforePrepare func(ctx context.Context)
	// MonitorNodes gives the container paths of the device nodes that monitoring
	// takes beside those of the GPUs; nil where it takes none.
	MonitorNodes func() ([]string, error)
	// Partitioning is nil on a node that prepares no MIG devices.
	Partitioning *Partitioning
	// MPS is nil on a node without a supervisor of MPS daemons, where shares
	// are plain.
	MPS MPS
	// ContextMemory is the memory in bytes that the CUDA context of a client of
	// MPS takes besides what the client is limited to.
	ContextMemory uint64
	// Shares says what shares the node offers.
	Shares catalog.ShareOffer
	// TimeSlicing is nil on a node that changes no time slices. Intervals
	// remembers what they were before claims changed them; it is needed with
	// TimeSlicing and the same for all processes that share Records.
	TimeSlicing TimeSlicing
	Intervals   *store.Store
	// Attributes returns what is published of a device.
	Attributes func(kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	Observer   Observer
}

// Manager prepares and unprepares claims. Its methods are idempotent and may be
// called at the same time.
type Manager struct {
	Options
	locks   *locks
	journal *journal.Journal
	steps   step.List
}

// New returns a manager. Call [Manager.Recover] before anything else, to bring
// to rest what a crash may have left.
func New(o Options) (*Manager, error) {
	if o.DriverName == "" || o.PoolName == "" || o.BootID == "" || o.LockFile == "" || o.Records == nil || o.Inventory == nil || o.CDI == nil {
		return nil, errors.New("claim manager: an option is missing")
	}
	if p := o.Partitioning; p != nil && (p.MIG == nil || p.CapabilityNodes == nil || p.Modes == nil) {
		return nil, errors.New("claim manager: an option of partitioning is missing")
	}
	if o.TimeSlicing != nil && o.Intervals == nil {
		return nil, errors.New("claim manager: an option of time slicing is missing")
	}
	if u := o.Occupancy; u != nil && (u.Hardware == nil || u.Task == nil || u.Pods == nil) {
		return nil, errors.New("claim manager: an option of occupancy is missing")
	}
	if o.BeforePrepare == nil {
		o.BeforePrepare = func(context.Context) {}
	}
	if o.Attributes == nil {
		o.Attributes = func(kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute { return nil }
	}
	if o.MonitorNodes == nil {
		o.MonitorNodes = func() ([]string, error) { return nil, nil }
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	locks, err := newLocks(o.LockFile)
	if err != nil {
		return nil, fmt.Errorf("claim manager: %w", err)
	}
	steps := step.New(o.stepOptions())
	return &Manager{
		Options: o,
		locks:   locks,
		journal: &journal.Journal{Records: o.Records, Specs: o.CDI, BootID: o.BootID, Lost: steps.Lost},
		steps:   steps,
	}, nil
}

func (o Options) stepOptions() step.Options {
	return step.Options{
		BootID: o.BootID, Inventory: o.Inventory, CDI: o.CDI, MonitorNodes: o.MonitorNodes,
		Partitioning: o.Partitioning, MPS: o.MPS, TimeSlicing: o.TimeSlicing, Intervals: o.Intervals,
	}
}

// SwitchedModes returns the GPUs whose MIG mode claims have switched on, or are about
// to: a mode of any other GPU is an administrator's. It is nil on a node that prepares
// no MIG devices.
func (m *Manager) SwitchedModes(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	return step.SwitchedModes(ctx, m.stepOptions())
}

type unobserved struct{}

func (unobserved) StepDone(string, bool, time.Duration, error) {}
