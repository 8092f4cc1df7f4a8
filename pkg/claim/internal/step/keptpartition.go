// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// keptPartition is the record of a partition that this driver has made, and that stays
// when no claim uses it. It is written when the partition is made: a disk that is full
// later cannot keep a claim from ending. It is deleted after the partition is destroyed.
// The next claim of the device finds the partition by it. A record with a UUID that is
// not there has no effect.
type keptPartition struct {
	BootID string `json:"bootID"`
	journal.Partition
}

// keeps reports whether the partition of a device stays without claims.
func (p *Partitioning) keeps(name kind.Name) bool {
	return p.Keep != nil && !p.Static && p.Keep(name)
}

// keep records that the partition of a device stays. It writes nothing if that is
// recorded already.
func (s createPartition) keep(device string, p journal.Partition) error {
	if recorded, _, err := s.read(device); err == nil && recorded != nil && *recorded == p {
		return nil
	}
	payload, err := json.Marshal(keptPartition{BootID: s.BootID, Partition: p})
	if err != nil {
		return err
	}
	return s.Partitioning.Kept.Write(device, payload)
}

// read returns the recorded partition of a device; nil if there is none. A record of
// another boot is stale and not returned. The error wraps [gpu.ErrCorrupt] if the record
// cannot be decoded. read needs no lock.
func (s createPartition) read(device string) (p *journal.Partition, stale bool, err error) {
	r, err := readRecord[keptPartition](s.Partitioning.Kept, device, "MIG device")
	if err != nil || r == nil {
		return nil, false, err
	}
	if r.BootID != s.BootID {
		return nil, true, nil
	}
	return &r.Partition, false, nil
}

// kept returns the recorded partition of a device; nil if there is none. It removes a
// stale record, and one that it cannot read: the partition then counts as an
// administrator's. The caller has the GPU-wide lock.
func (s createPartition) kept(ctx context.Context, device string) (*journal.Partition, error) {
	p, stale, err := s.read(device)
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		klog.FromContext(ctx).Error(err, "Cannot read a record of a MIG device, leaving the device", "device", device, "remedy", "nvidia-smi mig -dci and -dgi destroy it")
		return nil, s.Partitioning.Kept.Quarantine(device, err.Error())
	case err != nil:
		return nil, err
	case stale:
		return nil, s.Partitioning.Kept.Delete(device)
	}
	return p, nil
}

// keptOn returns the devices of a GPU whose partitions are recorded.
func (s createPartition) keptOn(ctx context.Context, address gpu.PCIAddress) ([]kind.Name, error) {
	keys, err := s.Partitioning.Kept.Keys()
	if err != nil {
		return nil, err
	}
	var names []kind.Name
	for _, key := range keys {
		name, err := kind.Parse(key)
		if err != nil || name.Address != address {
			continue
		}
		p, err := s.kept(ctx, key)
		if err != nil {
			return nil, err
		}
		if p != nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// isThere reports whether the recorded partition of a device exists.
func (s createPartition) isThere(ctx context.Context, mig gpu.MIG, name kind.Name) (bool, error) {
	p, err := s.kept(ctx, name.String())
	if err != nil || p == nil {
		return false, err
	}
	there := plan.PartitionsAt(mig, name)
	return isAmong(*p, there) || isHalf(*p, there), nil
}

// isWhole reports whether the recorded partition of a device exists with its compute
// instance.
func (s createPartition) isWhole(ctx context.Context, mig gpu.MIG, name kind.Name) (bool, error) {
	p, err := s.kept(ctx, name.String())
	if err != nil || p == nil {
		return false, err
	}
	return isAmong(*p, plan.PartitionsAt(mig, name)), nil
}

// isAnyThere reports whether a recorded partition of a GPU exists.
func (s createPartition) isAnyThere(ctx context.Context, mig gpu.MIG, address gpu.PCIAddress) (bool, error) {
	kept, err := s.keptOn(ctx, address)
	if err != nil {
		return false, err
	}
	for _, name := range kept {
		if there, err := s.isThere(ctx, mig, name); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

// Clean destroys the partitions that have stayed on the GPUs of a new record, except its
// own. A partition of the layout stays if it does not overlap the devices of the record
// and the layout has these too, because the hardware then admits all of them.
func (s createPartition) Clean(ctx context.Context, w Work) error {
	names, err := w.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		kept, err := s.keptOn(ctx, name.Address)
		if err != nil {
			return err
		}
		for _, k := range kept {
			if slices.Contains(names, k) || s.Partitioning.keeps(k) && s.Partitioning.keeps(name) && !s.overlap(ctx, k, name) {
				continue
			}
			if _, err := s.release(ctx, k, w.Others); err != nil {
				return fmt.Errorf("destroy a MIG device without claims: %w", err)
			}
		}
	}
	return nil
}

// overlap reports whether two devices of a GPU have a memory slice in common, or may
// have one.
func (s createPartition) overlap(ctx context.Context, a, b kind.Name) bool {
	g, err := s.Inventory.GPU(ctx, a.Address)
	_, placeA, knownA := a.FindIn(g.MIG)
	_, placeB, knownB := b.FindIn(g.MIG)
	return err != nil || !knownA || !knownB || placeA.Overlaps(placeB)
}

// Leftovers returns the GPUs that have records of partitions. A partition without an
// owner and without a record is an administrator's.
func (s createPartition) Leftovers(context.Context) ([]string, error) {
	keys, err := s.Partitioning.Kept.Keys()
	if err != nil {
		return nil, err
	}
	var gpus []string
	for _, key := range keys {
		if name, err := kind.Parse(key); err == nil {
			gpus = append(gpus, name.Address.DeviceName())
		}
	}
	slices.Sort(gpus)
	return slices.Compact(gpus), nil
}

// Sweep destroys the partitions of a GPU that no longer stay, and those without a compute
// instance: the inventory knows a partition that stays by its UUID, and would take the rest
// of one for an administrator's. The next claim creates the partition again.
func (s createPartition) Sweep(ctx context.Context, device string, others *journal.Others) (swept bool, err error) {
	name, err := kind.Parse(device)
	if err != nil {
		return false, err
	}
	kept, err := s.keptOn(ctx, name.Address)
	if err != nil {
		return false, err
	}
	if len(kept) == 0 {
		return false, nil
	}
	mig, err := s.Partitioning.MIG.MIG(ctx, name.Address)
	if err != nil {
		return false, err
	}
	for _, k := range kept {
		whole, err := s.isWhole(ctx, mig, k)
		if err != nil {
			return swept, err
		}
		if whole && s.Partitioning.keeps(k) {
			continue
		}
		released, err := s.release(ctx, k, others)
		switch {
		case errors.Is(err, gpu.ErrInUse):
			klog.FromContext(ctx).V(2).Info("MIG device stays for now", "device", k, "err", err)
		case err != nil:
			return swept, err
		}
		swept = swept || released
	}
	return swept, nil
}

// release destroys a partition that has stayed, and reports whether it did. It does
// nothing if a claim uses the device, or if another partition is in its place.
func (s createPartition) release(ctx context.Context, name kind.Name, others *journal.Others) (bool, error) {
	device := name.String()
	if last, err := others.IsLastUser(ctx, journal.StepCreatePartition, device); err != nil || !last {
		return false, err
	}
	mig, err := s.Partitioning.MIG.MIG(ctx, name.Address)
	if err != nil {
		return false, err
	}
	there, err := s.isThere(ctx, mig, name)
	if err != nil {
		return false, err
	}
	if there {
		if err := s.Partitioning.MIG.DestroyPartition(ctx, name.Address, name.Profile, name.Start); err != nil && !errors.Is(err, gpu.ErrNotFound) {
			return false, err
		}
		klog.FromContext(ctx).Info("Destroyed a MIG device without claims", "device", device)
	}
	return true, s.Partitioning.Kept.Delete(device)
}

// KeptPartitions returns the UUIDs of the MIG devices that this driver keeps without
// claims. It is nil on a node that prepares no MIG devices.
func KeptPartitions(ctx context.Context, o Options) (map[string]bool, error) {
	if o.Partitioning == nil {
		return nil, nil
	}
	keys, err := o.Partitioning.Kept.Keys()
	if err != nil {
		return nil, err
	}
	uuids := make(map[string]bool, len(keys))
	for _, key := range keys {
		p, _, err := createPartition{o}.read(key)
		switch {
		case errors.Is(err, gpu.ErrCorrupt):
			klog.FromContext(ctx).V(2).Info("Cannot read the record of a MIG device", "device", key, "err", err)
		case err != nil:
			return nil, err
		case p != nil:
			uuids[p.UUID] = true
		}
	}
	return uuids, nil
}
