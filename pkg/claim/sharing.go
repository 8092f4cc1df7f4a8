package claim

import (
	"context"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MPS runs MPS control daemons. Where it is out of reach for a while its errors
// wrap [gpu.ErrNotReady], and [gpu.ErrTimeout] where it does not answer in time
// or before ctx ends.
type MPS interface {
	// EnsureMPS has the daemon running as described and returns once it answers:
	// it starts it, or changes the ceilings of the one that runs. It is
	// idempotent. The error wraps [gpu.ErrInUse] where one of the name runs for
	// other devices, which is to be stopped first.
	EnsureMPS(ctx context.Context, daemon gpu.MPSDaemon) (gpu.MPSDirs, error)
	// StopMPS ends the daemon and removes its folders. It is idempotent: no
	// such daemon is no error.
	StopMPS(ctx context.Context, name string) error
	// MPSDaemons lists the daemons by name.
	MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error)
	// MultiUser reports whether the daemons serve clients of all users at a
	// time.
	MultiUser(ctx context.Context) (bool, error)
}

// TimeSlicing reads and changes how long processes compute on a GPU before the
// next one's turn. Both methods may be called for different GPUs at the same
// time; SetTimeSlice is idempotent.
type TimeSlicing interface {
	TimeSlice(ctx context.Context, address gpu.PCIAddress) (gpu.TimeSlice, error)
	SetTimeSlice(ctx context.Context, address gpu.PCIAddress, slice gpu.TimeSlice) error
}

// Share is how a device is shared, and what a share of it is held to.
type Share struct {
	// Strategy is empty where only the CDI spec of a claim tells of it; then
	// nothing else is known either.
	Strategy v1alpha1.Strategy
	// Memory in bytes that the share has; 0 for time slices, and where a claim
	// has all of the device.
	Memory uint64
	// Compute in percent of the multiprocessors that the claim asked for; 0
	// where it named none.
	Compute int
	// Processes among which an MPS share is divided; 0 where they are not
	// counted.
	Processes int
	// ThreadPercentage of the multiprocessors that each process can have at
	// most; 0 for no limit.
	ThreadPercentage int
	// MemoryLimit in bytes of each process, without its context; 0 for no
	// limit.
	MemoryLimit uint64
	// TimeSlice that was asked for; empty where none was.
	TimeSlice   gpu.TimeSlice
	Enforcement v1alpha1.Enforcement
}
