package claim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// MIG cuts GPUs. All methods may be called for different GPUs at the same time.
type MIG interface {
	// MIG looks at the GPU. An inventory may be older, and leave out what
	// claims have made.
	MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error)
	// SetMIGMode leaves nothing pending when it fails. The error wraps
	// [gpu.ErrInUse] while something uses the GPU. It is idempotent.
	SetMIGMode(ctx context.Context, address gpu.PCIAddress, on bool) error
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

// conflict reports whether two devices cannot be held at the same time. What is
// not known to go together does not.
func (m *Manager) conflict(ctx context.Context, a, b gpu.DeviceName) bool {
	if a.Address != b.Address {
		return false
	}
	if a.Kind != gpu.KindMIG || b.Kind != gpu.KindMIG {
		return true
	}
	g, err := m.Inventory.GPU(ctx, a.Address)
	if err != nil {
		return true
	}
	_, ofA, knownA := g.MIG.Find(a)
	_, ofB, knownB := g.MIG.Find(b)
	return !knownA || !knownB || ofA.Overlaps(ofB)
}

// letGo destroys the partitions of a claim without a readable record, of which
// its CDI spec is the witness, except those that are still wanted: these are
// noted as the claim's. The caller holds the locks of their GPUs.
func (m *Manager) letGo(ctx context.Context, lost Held, want *record) error {
	if m.Partitioning == nil || m.Partitioning.Static {
		return nil
	}
	for _, d := range lost.Devices {
		if d.Kind != gpu.KindMIG || want.adopt(d.Name) {
			continue
		}
		name, err := gpu.ParseDeviceName(d.Name)
		if err != nil {
			return err
		}
		if err := m.Partitioning.MIG.DestroyPartition(ctx, name.Address, name.Profile, name.Start); err != nil && !errors.Is(err, gpu.ErrNotFound) {
			return err
		}
		klog.FromContext(ctx).Info("Destroyed the partition of a claim without a record", "device", d.Name)
		if err := m.modeOff(ctx, name.Address, lost.UID); err != nil && !errors.Is(err, gpu.ErrInUse) {
			return err
		}
	}
	return nil
}

// adopt notes that the partition of a device may exist already, and be the
// claim's. It reports whether the record, which may be nil, is to have it.
func (r *record) adopt(device string) bool {
	if r == nil {
		return false
	}
	for i := range r.Journal {
		if e := &r.Journal[i]; e.Step == stepCreatePartition && e.Device == device {
			e.Result = []byte("{}")
			return true
		}
	}
	return false
}

// describe names a GPU for people who look for it.
func describe(address gpu.PCIAddress) string {
	return fmt.Sprintf("GPU %s at %s", address.DeviceName(), address)
}
