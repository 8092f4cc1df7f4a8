package claim

import (
	"context"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// MIG cuts GPUs. All methods may be called for different GPUs at the same time.
type MIG interface {
	// MIG looks at the GPU. An inventory may be older, and leave out what
	// claims have made.
	MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error)
	// MIGMode returns the mode of the GPU now and the one after its next reset. Both
	// are off on a GPU without MIG. It is much cheaper than MIG.
	MIGMode(ctx context.Context, address gpu.PCIAddress) (on, pending bool, err error)
	// SetMIGMode leaves nothing pending when it fails, unless the process ends
	// meanwhile. The error wraps [gpu.ErrInUse] while something uses the GPU. It is
	// idempotent.
	SetMIGMode(ctx context.Context, address gpu.PCIAddress, on bool) error
	// CancelPendingMIGMode takes back a mode that waits for a reset. Nothing pending
	// is no error. The caller knows that no administrator has set it.
	CancelPendingMIGMode(ctx context.Context, address gpu.PCIAddress) error
	// CreatePartition leaves nothing behind when it fails, and takes what is
	// there of exactly that partition for its own.
	CreatePartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) (gpu.Partition, error)
	// DestroyPartition is idempotent; the error wraps [gpu.ErrInUse] while a
	// process uses the partition.
	DestroyPartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) error
}

// Partitioning is what it takes to prepare MIG devices. All but Static is
// needed.
type Partitioning struct {
	MIG MIG
	// CapabilityNodes gives the container paths of the device nodes that come
	// with a GPU instance and a compute instance.
	CapabilityNodes func(g gpu.GPU, gpuInstance, computeInstance int) ([]string, error)
	// Modes remembers which GPUs' MIG mode was switched on by claims. It is the
	// same for all processes that share the records of claims.
	Modes *store.Store
	// Static takes partitions as an administrator has made them, and neither
	// makes nor destroys any. What claims had made before stays theirs.
	Static bool
}

func (m *Manager) static() bool { return m.Partitioning != nil && m.Partitioning.Static }

// describe names a GPU for people who look for it.
func describe(address gpu.PCIAddress) string {
	return fmt.Sprintf("GPU %s at %s", address.DeviceName(), address)
}
