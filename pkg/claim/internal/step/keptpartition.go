// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// keptPartition is the record of a partition that this driver creates and keeps without
// a claim, or that is left on a GPU that is gone. For a partition that the node keeps it is
// written when the partition is made: a disk that is full later cannot keep a claim from
// ending. It is deleted after the partition is destroyed. The next claim of the device finds
// the partition by it. A record with a UUID that is not there has no effect.
type keptPartition struct {
	BootID string `json:"bootID"`
	journal.Partition
}

func (p keptPartition) isOf(boot string) bool { return p.BootID == boot }

// isThere reports whether the partition of the device exists, and whether it is whole: whether
// it has its compute instance.
func (p keptPartition) isThere(mig gpu.MIG, device kind.Name) (there, whole bool) {
	present := plan.PartitionsAt(mig, device)
	_, whole = findAmong([]journal.Partition{p.Partition}, present)
	return whole || isHalf(p.Partition, present), whole
}

// keptPartitions are the partitions that stay without claims. A partition whose record cannot
// be read counts as an administrator's.
type keptPartitions struct {
	*ports.Partitioning
	inventory ports.Inventory
	records   bootRecords[keptPartition]
}

func newKeptPartitions(parts ports.Node) keptPartitions {
	k := keptPartitions{Partitioning: parts.Partitioning, inventory: parts.Inventory}
	if parts.Partitioning != nil {
		k.records = bootRecords[keptPartition]{store: parts.Partitioning.Kept, boot: parts.BootID, subject: "MIG device"}
	}
	return k
}

// keeps reports whether the partition of a device stays without claims.
func (k keptPartitions) keeps(name kind.Name) bool {
	return k.Keep != nil && !k.Static && k.Keep(name)
}

// keep records that the partition of a device stays. It writes nothing if that is
// recorded already.
func (k keptPartitions) keep(device kind.Name, p journal.Partition) error {
	if recorded, _, err := k.records.read(device); err == nil && recorded != nil && recorded.Partition == p {
		return nil
	}
	return k.records.write(device, keptPartition{BootID: k.records.boot, Partition: p})
}

// recorded returns the recorded partitions of a GPU by their devices.
func (k keptPartitions) recorded(ctx context.Context, address gpu.PCIAddress) (map[kind.Name]keptPartition, error) {
	devices, _, err := k.records.devices()
	if err != nil {
		return nil, err
	}
	kept := map[kind.Name]keptPartition{}
	for _, name := range devices {
		if name.Address != address {
			continue
		}
		p, _, err := k.records.load(ctx, name)
		if err != nil {
			return nil, err
		}
		if p != nil {
			kept[name] = *p
		}
	}
	return kept, nil
}

// isAnyThere reports whether a recorded partition of a GPU exists.
func (k keptPartitions) isAnyThere(ctx context.Context, mig gpu.MIG, address gpu.PCIAddress) (bool, error) {
	kept, err := k.recorded(ctx, address)
	for name, p := range kept {
		if there, _ := p.isThere(mig, name); there {
			return true, nil
		}
	}
	return false, err
}

// Clean destroys the partitions that have stayed on the GPUs of a new record, except its
// own. A partition of the layout stays if it does not overlap the devices of the record
// and the layout has these too, because the hardware then admits all of them.
func (k keptPartitions) Clean(ctx context.Context, w Work) error {
	names := w.Names()
	for _, name := range names {
		kept, err := k.recorded(ctx, name.Address)
		if err != nil {
			return err
		}
		for _, other := range slices.SortedFunc(maps.Keys(kept), kind.Compare) {
			if slices.Contains(names, other) || k.keeps(other) && k.keeps(name) && !k.overlap(ctx, other, name) {
				continue
			}
			if _, err := k.release(ctx, other, kept[other], w.Others); err != nil {
				return fmt.Errorf("destroy a MIG device without claims: %w", err)
			}
		}
	}
	return nil
}

// overlap reports whether two devices of a GPU have a memory slice in common, or may
// have one.
func (k keptPartitions) overlap(ctx context.Context, a, b kind.Name) bool {
	g, err := k.inventory.GPU(ctx, a.Address)
	_, placeA, knownA := a.FindIn(g.MIG)
	_, placeB, knownB := b.FindIn(g.MIG)
	return err != nil || !knownA || !knownB || placeA.Overlaps(placeB)
}

// Leftovers returns the GPUs that have records of partitions. A partition without an
// owner and without a record is an administrator's.
func (k keptPartitions) Leftovers(context.Context) ([]kind.Name, error) {
	devices, _, err := k.records.devices()
	gpus := make([]kind.Name, len(devices))
	for i, name := range devices {
		gpus[i] = kind.Whole(name.Address)
	}
	return slices.Compact(gpus), err
}

// Sweep destroys the partitions of a GPU that no longer stay, and those without a compute
// instance: the inventory knows a partition that stays by its UUID, and would take the rest
// of one for an administrator's. The next claim creates the partition again.
func (k keptPartitions) Sweep(ctx context.Context, device kind.Name, others *journal.Others) (swept bool, err error) {
	kept, err := k.recorded(ctx, device.Address)
	if err != nil || len(kept) == 0 {
		return false, err
	}
	mig, err := k.MIG.MIG(ctx, device.Address)
	switch {
	case gpu.Gone(err):
		klog.FromContext(ctx).V(2).Info("MIG devices stay recorded, because their GPU is gone", "device", device, "err", err)
		return false, nil
	case err != nil:
		return false, err
	}
	for _, name := range slices.SortedFunc(maps.Keys(kept), kind.Compare) {
		if _, whole := kept[name].isThere(mig, name); whole && k.keeps(name) {
			continue
		}
		released, err := k.release(ctx, name, kept[name], others)
		switch {
		case errors.Is(err, gpu.ErrInUse):
			klog.FromContext(ctx).V(2).Info("MIG device stays for now", "device", name, "err", err)
		case err != nil:
			return swept, err
		}
		swept = swept || released
	}
	return swept, nil
}

// release destroys a partition that has stayed, and reports whether it did. It does
// nothing if a claim uses the device, or if another partition is in its place.
func (k keptPartitions) release(ctx context.Context, name kind.Name, p keptPartition, others *journal.Others) (bool, error) {
	if last, err := others.IsLastUser(ctx, journal.StepCreatePartition, name); err != nil || !last {
		return false, err
	}
	mig, err := k.MIG.MIG(ctx, name.Address)
	if err != nil {
		return false, err
	}
	if there, _ := p.isThere(mig, name); there {
		if err := k.destroy(ctx, name, others); err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info("Destroyed a MIG device without claims", "device", name)
	}
	return true, k.records.delete(name)
}

// KeptPartitions returns the UUIDs of the MIG devices that this driver keeps without
// claims.
func (l List) KeptPartitions(ctx context.Context) (map[string]bool, error) {
	s, ok := find[createPartition](l)
	if !ok {
		return nil, nil
	}
	records, err := s.records.list(ctx)
	if err != nil {
		return nil, err
	}
	uuids := make(map[string]bool, len(records))
	for _, p := range records {
		uuids[p.UUID] = true
	}
	return uuids, nil
}
