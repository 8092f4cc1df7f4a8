// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/step"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Ref names a claim.
type Ref = plan.Ref

// Device is one device of a prepared claim.
type Device struct {
	// Request as in the allocation result: "gpu", or "gpu/big" for the
	// subrequest "big" of the request "gpu".
	Request string
	// Class is the DeviceClass of the request. It is empty if the claim's record was lost.
	Class string
	Pool  string
	Name  kind.Name
	// ShareID distinguishes the allocations of one device. It is nil if the
	// device belongs to one claim at a time.
	ShareID *types.UID
	// UUID of the GPU or, once it is created, of the MIG device. It is empty for all
	// GPUs of the node.
	UUID string
	// CDIDeviceIDs are fully qualified CDI names.
	CDIDeviceIDs []string
	// Terms on which the claim has the device.
	Terms share.Terms
	// Attributes as published. Only [Manager.Prepare] sets them.
	Attributes map[string]resourceapi.DeviceAttribute
}

// Strategy returns how the processes on the device share it. It returns "" if the claim has
// the device to itself without limits, or if that is unknown.
func (d Device) Strategy() v1alpha1.Strategy { return d.Terms.Strategy(d.Name.Kind) }

// Observer receives the result of every step, for metrics. It must not block.
type Observer interface {
	StepDone(step string, undo bool, took time.Duration, err error)
}

// Options of a [Manager]. The fields up to Node are required.
type Options struct {
	// DriverName selects the allocation results and configurations of this
	// driver.
	DriverName string
	// PoolName is the pool that this node publishes.
	PoolName string
	// LockFile is created if it is missing. All processes that share Records
	// use the same lock file.
	LockFile string
	Records  *store.Store
	// Node has the parts that act on the node.
	ports.Node
	// Occupancy is nil on a node that cannot list the processes on its GPUs.
	Occupancy *Occupancy
	// BeforePrepare updates the Inventory before each attempt of [Manager.Prepare],
	// within the time of that call. It is nil if no update is needed.
	BeforePrepare func(ctx context.Context)
	// Shares returns the shares that the node offers now.
	Shares func() catalog.ShareOffer
	// Attributes returns the published attributes of a device.
	Attributes func(kind.Name) kind.Attributes
	Observer   Observer
}

// Manager prepares and unprepares claims. Its methods are idempotent and safe for
// concurrent use.
type Manager struct {
	options Options
	locks   *locks
	journal *journal.Journal
	steps   step.List
}

// New returns a manager. The caller must call [Manager.Recover] before any other
// method, to recover claims that a crash may have left half prepared.
func New(o Options) (*Manager, error) {
	if o.DriverName == "" || o.PoolName == "" || o.LockFile == "" || o.Records == nil {
		return nil, errors.New("claim manager: an option is missing")
	}
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("claim manager: %w", err)
	}
	if u := o.Occupancy; u != nil && (u.Hardware == nil || u.Task == nil || u.Pods == nil || u.Consumers == nil) {
		return nil, errors.New("claim manager: an option of occupancy is missing")
	}
	if o.BeforePrepare == nil {
		o.BeforePrepare = func(context.Context) {}
	}
	if o.Shares == nil {
		o.Shares = func() catalog.ShareOffer { return catalog.ShareOffer{} }
	}
	if o.Attributes == nil {
		o.Attributes = func(kind.Name) kind.Attributes { return nil }
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	locks, err := newLocks(o.LockFile)
	if err != nil {
		return nil, fmt.Errorf("claim manager: %w", err)
	}
	steps := step.New(o.Node)
	return &Manager{
		options: o,
		locks:   locks,
		journal: &journal.Journal{Records: o.Records, Specs: o.CDI, BootID: o.BootID, Lost: steps.Lost},
		steps:   steps,
	}, nil
}

// Close ends the manager's watch of the records. Calls are still correct, but read more.
func (m *Manager) Close() error { return m.journal.Close() }

// SwitchedModes returns the GPUs whose MIG mode claims have switched on, or are about
// to. On any other GPU in MIG mode, an administrator switched it on. SwitchedModes
// returns nil on a node that prepares no MIG devices.
func (m *Manager) SwitchedModes(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	return m.steps.SwitchedModes(ctx)
}

// KeptPartitions returns the UUIDs of the unused MIG devices that this driver keeps for
// the next claim. It returns nil on a node that prepares no MIG devices.
func (m *Manager) KeptPartitions(ctx context.Context) (map[string]bool, error) {
	return m.steps.KeptPartitions(ctx)
}

// ExclusiveGPUs returns the GPUs that claims have put into EXCLUSIVE_PROCESS, or are
// about to. On any other GPU in that mode, an administrator set it.
func (m *Manager) ExclusiveGPUs(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	return m.steps.ExclusiveGPUs(ctx)
}

type unobserved struct{}

func (unobserved) StepDone(string, bool, time.Duration, error) {}
