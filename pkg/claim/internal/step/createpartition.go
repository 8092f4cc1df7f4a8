// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// createPartition makes the partition of a MIG device. A partition is destroyed only
// if the journal, or the CDI spec of a claim with a lost record, says by its UUID that
// this driver made it; before the UUID is known, because the place was vacant when the
// step began. So a partition that an administrator makes in exactly that place in the
// milliseconds between Note and Do, or after a crash in between, is taken for the
// claim's.
//
// Claims that share a MIG device use one partition. The first
// one makes it, each of the others takes over the result from the journals before it,
// and the last one destroys it, even if another one has made it. If the node keeps
// partitions, the last one leaves it with its record; see [keptPartition].
type createPartition struct {
	keptPartitions
}

var (
	_ Noter    = createPartition{}
	_ Cleaner  = createPartition{}
	_ Injector = createPartition{}
	_ Witness  = createPartition{}
	_ Sweeper  = createPartition{}
)

func newCreatePartition(parts ports.Node, partitions keptPartitions) Step {
	if parts.Partitioning == nil {
		return unsupported{createPartition{}}
	}
	return createPartition{partitions}
}

// annotationPartition of a claim's CDI device is the [journal.Partition] of its
// partition: the proof that a partition is this driver's if the record of the claim is
// lost.
const annotationPartition = "partition"

func (createPartition) Name() string { return journal.StepCreatePartition }

func (createPartition) GPUWide() bool { return true }

func (createPartition) Needed(p plan.Plan) []kind.Name {
	var devices []kind.Name
	for _, name := range p.Names() {
		if name.IsPartition() {
			devices = append(devices, name)
		}
	}
	return devices
}

func (s createPartition) Note(ctx context.Context, w Work, e journal.Entry) (json.RawMessage, error) {
	name := e.Device
	mig, err := s.MIG.MIG(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	present := plan.PartitionsAt(mig, name)
	var known []journal.Partition
	if len(e.Result) > 0 {
		own, err := e.Partition()
		if err != nil {
			return nil, err
		}
		known = append(known, own)
	}
	if p, ok := findAmong(known, present); ok {
		return journal.Encode(p)
	}
	if len(known) == 0 && s.Static {
		if len(present) != 1 || present[0].UUID == "" {
			return nil, fmt.Errorf("%w: no administrator has made %s@%d on %s, or not any more", gpu.ErrNotFound, name.Profile, name.Start, plan.Describe(name.Address))
		}
		return journal.Encode(partitionOf(present[0], true))
	}
	shared, err := partitionsOfOthers(ctx, w.Others, name)
	if err != nil {
		return nil, err
	}
	known = append(known, shared...)
	kept, _, err := s.records.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		known = append(known, kept.Partition)
	}
	if p, ok := findAmong(known, present); ok {
		return journal.Encode(p)
	}
	for _, k := range known {
		switch {
		case k.Found && k.UUID != "":
			return nil, fmt.Errorf("%w: MIG device %s, %s@%d on %s, is gone; an administrator has to make it again", gpu.ErrNotFound, k.UUID, name.Profile, name.Start, plan.Describe(name.Address))
		case !k.Found && (k.UUID == "" || isHalf(k, present)):
			return journal.Encode(journal.Partition{}) // it may be half made
		}
	}
	if err := checkVacant(mig, name); err != nil {
		return nil, err
	}
	return journal.Encode(journal.Partition{})
}

func (s createPartition) Do(ctx context.Context, _ Work, e journal.Entry) (json.RawMessage, error) {
	name := e.Device
	noted, err := e.Partition()
	if err != nil || noted.UUID != "" {
		return nil, err // Note has just seen it
	}
	p, err := s.MIG.CreatePartition(ctx, name.Address, name.Profile, name.Start)
	if err != nil {
		return nil, err
	}
	made := partitionOf(p, false)
	result, err := journal.Encode(made)
	if err != nil || !s.keeps(name) {
		return result, err
	}
	return result, s.keep(name, made)
}

// Undo destroys the partition unless another claim uses it or it stays for the next
// claim. If its record is missing and cannot be written, it does not stay. A GPU that is
// gone keeps no pod from ending, or its claim from other GPUs: a sweep destroys a recorded
// partition if it is there once the GPU is. One that may be half made has no UUID to record;
// a reset of the GPU destroys it, or an administrator.
func (s createPartition) Undo(ctx context.Context, w Work, e journal.Entry) error {
	result, err := e.Partition()
	if e.State == journal.Lost && (err != nil || result.Found) {
		klog.FromContext(ctx).Info("Leaving the partition of a claim without a record", "remedy", "nvidia-smi mig -dci and -dgi destroy it", "device", e.Device, "err", err)
		return nil
	}
	if err != nil || result.Found {
		return err
	}
	if last, err := w.Others.IsLastUser(ctx, s.Name(), e.Device); err != nil || !last {
		return err
	}
	err = s.destroyLast(ctx, w, e.Device, result)
	if !gpu.Gone(err) {
		return err
	}
	klog.FromContext(ctx).Info("Leaving a MIG device to a sweep, because its GPU is gone", "device", e.Device, "uuid", result.UUID, "err", err)
	if result.UUID == "" {
		return nil
	}
	return s.keep(e.Device, result)
}

// destroyLast destroys a partition that no claim uses any more, unless it stays.
func (s createPartition) destroyLast(ctx context.Context, w Work, name kind.Name, result journal.Partition) error {
	if result.UUID != "" {
		mig, err := s.MIG.MIG(ctx, name.Address)
		if err != nil {
			return err
		}
		present := plan.PartitionsAt(mig, name)
		for _, p := range present {
			if p.UUID != result.UUID && !isHalf(result, present) {
				klog.FromContext(ctx).Info("The partition is gone and another in its place, which stays", "step", s.Name(), "device", name, "uuid", result.UUID, "other", describePartition(p))
				return nil
			}
		}
	}
	if result.UUID != "" && s.keeps(name) {
		err := s.keep(name, result)
		if err == nil {
			klog.FromContext(ctx).V(2).Info("Keeping a MIG device for the next claim", "device", name, "uuid", result.UUID)
			return nil
		}
		klog.FromContext(ctx).Error(err, "Cannot record a MIG device, destroying it", "device", name, "uuid", result.UUID)
	}
	if err := s.destroy(ctx, name, w.Others); err != nil {
		return err
	}
	return s.records.delete(name)
}

// Inject adds the device nodes that admit containers to the MIG device, and the
// annotation that Lost reads.
func (s createPartition) Inject(ctx context.Context, r *journal.Record, d plan.Device, injection *gpu.Injection) error {
	if !d.Name.IsPartition() {
		return nil
	}
	made, err := r.Partition(d.Name)
	if err != nil {
		return err
	}
	if made.UUID == "" {
		return fmt.Errorf("%w: the MIG device has not been made", gpu.ErrNotFound)
	}
	g, err := s.inventory.GPU(ctx, d.Name.Address)
	if err != nil {
		return err
	}
	nodes, err := s.CapabilityNodes(g.GPU, made.GPUInstance, made.ComputeInstance)
	if err != nil {
		return err
	}
	injection.DeviceNodes = append(injection.DeviceNodes, nodes...)
	value, err := json.Marshal(made)
	injection.Annotations = map[string]string{annotationPartition: string(value)}
	return err
}

// Lost reads the annotation of the CDI device. Without one, nothing says which program
// made the partition.
func (createPartition) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	if !d.Name.IsPartition() {
		return kind.Name{}, nil, false
	}
	e := journal.Entry{Result: json.RawMessage(d.Annotations[annotationPartition])}
	if p, err := e.Partition(); err != nil || p.UUID == "" {
		return d.Name, json.RawMessage(`{"found":true}`), true
	}
	return d.Name, e.Result, true
}

// checkVacant returns an error that wraps [gpu.ErrInUse] if something is in the place
// of a partition.
func checkVacant(mig gpu.MIG, name kind.Name) error {
	_, place, known := name.FindIn(mig)
	if !known {
		return fmt.Errorf("%w: %s has no profile %s at memory slice %d", gpu.ErrNotFound, plan.Describe(name.Address), name.Profile, name.Start)
	}
	for _, p := range mig.Partitions {
		if p.Placement.Overlaps(place) {
			return fmt.Errorf("%s@%d on %s: %w by %s, which this driver has not made; see %s",
				name.Profile, name.Start, plan.Describe(name.Address), gpu.ErrInUse, describePartition(p), gpu.Page("docs/admin/mig.md#troubleshooting"))
		}
	}
	return nil
}

// describePartition names a partition for people who search for it.
func describePartition(p gpu.Partition) string {
	return fmt.Sprintf("MIG instance %s@%d (GPU instance %d %s)", p.Profile, p.Placement.Start, p.GPUInstanceID, p.UUID)
}

// findAmong returns the first of the known partitions that is present, as it is now.
func findAmong(known []journal.Partition, present []gpu.Partition) (journal.Partition, bool) {
	for _, k := range known {
		i := slices.IndexFunc(present, func(p gpu.Partition) bool { return p.UUID == k.UUID })
		if k.UUID != "" && i >= 0 {
			return partitionOf(present[i], k.Found), true
		}
	}
	return journal.Partition{}, false
}

// isHalf reports whether the partition is there without its compute instance, which
// another program has destroyed.
func isHalf(p journal.Partition, present []gpu.Partition) bool {
	return p.UUID != "" && len(present) == 1 && present[0].UUID == "" && present[0].GPUInstanceID == p.GPUInstance
}

// partitionsOfOthers returns what other claims know of the partition of a device that
// they share.
func partitionsOfOthers(ctx context.Context, others *journal.Others, device kind.Name) ([]journal.Partition, error) {
	holders, err := others.List(ctx)
	if err != nil {
		return nil, err
	}
	var known []journal.Partition
	for _, h := range holders {
		if !h.Began(journal.StepCreatePartition, device) {
			continue
		}
		p, err := h.Partition(device)
		if err != nil {
			return nil, err
		}
		known = append(known, p)
	}
	return known, nil
}

func partitionOf(p gpu.Partition, found bool) journal.Partition {
	return journal.Partition{Found: found, UUID: p.UUID, GPUInstance: p.GPUInstanceID, ComputeInstance: p.ComputeInstanceID}
}
