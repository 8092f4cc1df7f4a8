package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// Ref names a claim.
type Ref struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String gives what a person would look for: "team-a/one-gpu (UID …)".
func (r Ref) String() string { return fmt.Sprintf("%s/%s (UID %s)", r.Namespace, r.Name, r.UID) }

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
	// Address of the GPU; unused for [kind.Monitor].
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

// Inventory knows the GPUs of this node as last seen. It is asked under locks
// too, so it waits for nothing but, at the start, the first look at the GPUs.
type Inventory interface {
	// GPU returns an error that wraps [gpu.ErrNotFound], [gpu.ErrNotReady]
	// while nothing is known of the GPUs, or [gpu.ErrLost].
	GPU(ctx context.Context, address gpu.PCIAddress) (gpu.GPU, error)
	// GPUs are those that answer, in order of the address; the error wraps
	// [gpu.ErrNotReady] while there are none.
	GPUs(ctx context.Context) ([]gpu.GPU, error)
}

// CDI keeps the specs from which a container runtime learns of a claim's
// devices. All methods may be called for different claims at the same time.
type CDI interface {
	// Write makes the claim's spec say exactly this, whatever is there, and
	// returns the qualified device IDs in the order of the injections.
	Write(ctx context.Context, claim types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error)
	// Remove deletes the spec and what is left of a crashed Write. Nothing
	// there is no error.
	Remove(ctx context.Context, claim types.UID) error
	// List returns the claims for which there is a spec or part of one.
	List(ctx context.Context) ([]types.UID, error)
	// Read returns whom a spec is for and its injections with their IDs and
	// annotations; the error wraps [gpu.ErrNotFound] or [gpu.ErrCorrupt].
	Read(ctx context.Context, claim types.UID) (owner types.NamespacedName, injections []gpu.Injection, err error)
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
	locks    *locks
	steps    map[string]step
	glimpsed glimpses
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
	m := &Manager{Options: o, locks: locks}
	m.steps = map[string]step{
		stepStartMPS: startMPS{o.MPS},
		stepWriteCDI: writeCDI{inventory: o.Inventory, cdi: o.CDI, partitioning: o.Partitioning, monitorNodes: o.MonitorNodes},
	}
	if o.TimeSlicing != nil {
		m.steps[stepSetTimeSlice] = setTimeSlice{m}
	}
	if p := o.Partitioning; p != nil {
		m.steps[stepEnsureMIGMode] = ensureMIGMode{m}
		m.steps[stepCreatePartition] = createPartition{mig: p.MIG, static: p.Static}
	}
	return m, nil
}

type unobserved struct{}

func (unobserved) StepDone(string, bool, time.Duration, error) {}
