package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const stepCreatePartition = "CreatePartition"

// createPartition makes the partition of a MIG device. Nothing on a partition
// says whose it is, so the journal does, and the CDI spec of a claim whose record
// is lost. A partition is destroyed only if one of them says that this driver made
// it, by its UUID; before the UUID is known, because the place was vacant when the
// step began. So what an administrator makes in exactly that place in the
// milliseconds between begin and the making, or after a crash in between, is taken
// for the claim's.
//
// Claims that have shares of one MIG device have its partition in common. The
// first one makes it, each of the others takes over what the journals before it
// say, and the last one destroys it, whoever has made it.
type createPartition struct {
	mig    MIG
	static bool
}

// partitionResult is the result of createPartition.
type partitionResult struct {
	// Found says that it was there, and nothing says that this driver made it: it
	// is used and never changed.
	Found bool `json:"found,omitempty"`
	// UUID of the MIG device. It is empty while this driver may or may not have
	// made it, and of a partition that is found where a CDI spec without an
	// annotation is all that tells of it.
	UUID            string `json:"uuid,omitempty"`
	GPUInstance     int    `json:"gpuInstance,omitempty"`
	ComputeInstance int    `json:"computeInstance,omitempty"`
}

func (s createPartition) begin(ctx context.Context, j job, e *entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	mig, err := s.mig.MIG(ctx, name.Address)
	if err != nil {
		return err
	}
	there := partitionsAt(mig, name)
	var before []partitionResult // what the claim's journal says, then those of others
	if len(e.Result) > 0 {
		own, err := e.partition()
		if err != nil {
			return err
		}
		if own.is(there) {
			return e.found(own.Found, there[own.in(there)])
		}
		before = append(before, own)
	} else if s.static {
		if len(there) != 1 || there[0].UUID == "" {
			return fmt.Errorf("%w: no administrator has made %s@%d on %s, or not any more", gpu.ErrNotFound, name.Profile, name.Start, describe(name.Address))
		}
		return e.found(true, there[0])
	}
	shared, err := j.partitions(ctx, e.Device)
	if err != nil {
		return err
	}
	before = append(before, shared...)
	for _, b := range before {
		if b.is(there) {
			return e.found(b.Found, there[b.in(there)])
		}
	}
	for _, b := range before {
		switch {
		case b.Found && b.UUID != "":
			return fmt.Errorf("%w: MIG device %s, %s@%d on %s, is gone; whoever made it has to make it again", gpu.ErrNotFound, b.UUID, name.Profile, name.Start, describe(name.Address))
		case b.Found:
			if len(there) == 1 && there[0].UUID != "" {
				return e.found(true, there[0])
			}
		case b.UUID == "" || b.isHalf(there):
			return e.note(partitionResult{}) // it may be half made
		}
	}
	if err := vacant(mig, name); err != nil {
		return err
	}
	return e.note(partitionResult{})
}

func (s createPartition) do(ctx context.Context, _ job, e *entry) error {
	result, err := e.partition()
	if err != nil || result.UUID != "" {
		return err // begin has just seen it
	}
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	p, err := s.mig.CreatePartition(ctx, name.Address, name.Profile, name.Start)
	if err != nil {
		return err
	}
	return e.found(false, p)
}

func (s createPartition) undo(ctx context.Context, j job, e entry) error {
	result, err := e.partition()
	if err != nil || result.Found {
		return err
	}
	if last, err := j.nobodyElse(ctx, stepCreatePartition, e.Device); err != nil || !last {
		return err
	}
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	if result.UUID != "" {
		mig, err := s.mig.MIG(ctx, name.Address)
		if err != nil {
			return err
		}
		there := partitionsAt(mig, name)
		for _, p := range there {
			if p.UUID != result.UUID && !result.isHalf(there) {
				klog.FromContext(ctx).Info("The partition is gone and another in its place, which stays", "step", stepCreatePartition, "device", e.Device, "uuid", result.UUID, "other", found(p))
				return nil
			}
		}
	}
	err = s.mig.DestroyPartition(ctx, name.Address, name.Profile, name.Start)
	if errors.Is(err, gpu.ErrNotFound) {
		return nil
	}
	return err
}

// partitionsAt gives the MIG devices of exactly that profile and place: one for
// each compute instance.
func partitionsAt(mig gpu.MIG, name kind.Name) []gpu.Partition {
	var there []gpu.Partition
	for _, p := range mig.Partitions {
		if p.Profile == name.Profile && p.Placement.Start == name.Start {
			there = append(there, p)
		}
	}
	return there
}

// vacant reports an error that wraps [gpu.ErrInUse] where something is in the
// place of a partition.
func vacant(mig gpu.MIG, name kind.Name) error {
	_, place, known := name.FindIn(mig)
	if !known {
		return fmt.Errorf("%w: %s has no profile %s at memory slice %d", gpu.ErrNotFound, describe(name.Address), name.Profile, name.Start)
	}
	for _, p := range mig.Partitions {
		if p.Placement.Overlaps(place) {
			return fmt.Errorf("%s@%d on %s: %w by %s, which this driver has not made; destroy it with nvidia-smi mig -dci and -dgi, or leave it and the pod gets another place when it is created anew",
				name.Profile, name.Start, describe(name.Address), gpu.ErrInUse, found(p))
		}
	}
	return nil
}

// found names a partition that was found.
func found(p gpu.Partition) string {
	return fmt.Sprintf("MIG instance %s@%d (GPU instance %d %s)", p.Profile, p.Placement.Start, p.GPUInstanceID, p.UUID)
}

// is reports whether the partition is one of those.
func (r partitionResult) is(there []gpu.Partition) bool { return r.UUID != "" && r.in(there) >= 0 }

// isHalf reports whether what is there is the partition without its compute
// instance, which somebody has destroyed.
func (r partitionResult) isHalf(there []gpu.Partition) bool {
	return r.UUID != "" && len(there) == 1 && there[0].UUID == "" && there[0].GPUInstanceID == r.GPUInstance
}

func (r partitionResult) in(there []gpu.Partition) int {
	return slices.IndexFunc(there, func(p gpu.Partition) bool { return p.UUID == r.UUID })
}

// partitions returns what other claims know of the partition of a device of which
// they have shares.
func (a *around) partitions(ctx context.Context, device string) ([]partitionResult, error) {
	others, err := a.others(ctx)
	if err != nil {
		return nil, err
	}
	var known []partitionResult
	for _, other := range others {
		if !other.began(stepCreatePartition, device) {
			continue
		}
		result, err := other.partition(device)
		if err != nil {
			return nil, err
		}
		known = append(known, result)
	}
	return known, nil
}

func (e *entry) found(by bool, p gpu.Partition) error {
	return e.note(partitionResult{Found: by, UUID: p.UUID, GPUInstance: p.GPUInstanceID, ComputeInstance: p.ComputeInstanceID})
}

func (e *entry) note(result partitionResult) (err error) {
	e.Result, err = json.Marshal(result)
	return err
}

func (e entry) partition() (partitionResult, error) {
	var result partitionResult
	if err := json.Unmarshal(e.Result, &result); err != nil {
		return result, fmt.Errorf("result of %s %s: %w: %s", e.Step, e.Device, gpu.ErrCorrupt, e.Result)
	}
	return result, nil
}

// partition gives what is known of the partition of one of the record's
// devices.
func (r *record) partition(device string) (partitionResult, error) {
	for _, e := range r.Journal {
		if e.Step == stepCreatePartition && e.Device == device && len(e.Result) > 0 {
			return e.partition()
		}
	}
	return partitionResult{}, nil
}

// annotationPartition of a claim's CDI device is the [partitionResult] of its
// partition: the sign by which a partition is known to be this driver's if the
// record of the claim is lost.
const annotationPartition = "partition"

// witnessedPartition returns the step of a claim without a record, as the
// annotation of its CDI spec tells of it. Without an annotation nothing says who
// made the partition.
func witnessedPartition(device, annotation string) entry {
	e := entry{Step: stepCreatePartition, Device: device, State: done, Result: json.RawMessage(annotation)}
	if result, err := e.partition(); err != nil || result.UUID == "" {
		e.Result = json.RawMessage(`{"found":true}`)
	}
	return e
}

// annotate returns the annotations of the CDI device of a partition.
func (r partitionResult) annotate() (map[string]string, error) {
	value, err := json.Marshal(r)
	return map[string]string{annotationPartition: string(value)}, err
}
