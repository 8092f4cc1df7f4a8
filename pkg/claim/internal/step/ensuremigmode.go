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
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// ensureMIGMode switches the MIG mode of a GPU on before partitions are made there. It is
// switched off with the last claim's partition on that GPU, unless partitions have stayed.
type ensureMIGMode struct {
	inventory ports.Inventory
	mig       ports.MIG
	// static is set if partitions are an administrator's, and so is the mode.
	static bool
	setting[bool]
}

var (
	_ Cleaner = ensureMIGMode{}
	_ Witness = ensureMIGMode{}
	_ Sweeper = ensureMIGMode{}
)

const stepEnsureMIGMode = "EnsureMIGMode"

func newEnsureMIGMode(parts ports.Node, partitions keptPartitions) Step {
	if parts.Partitioning == nil {
		return unsupported{ensureMIGMode{}}
	}
	s := ensureMIGMode{inventory: parts.Inventory, mig: parts.Partitioning.MIG, static: parts.Partitioning.Static}
	s.setting = newSetting(stepEnsureMIGMode, "MIG mode", parts.Partitioning.Modes, parts.BootID, func(ctx context.Context, address gpu.PCIAddress, _ bool) (bool, error) {
		return s.switchOff(ctx, address, partitions)
	})
	s.needed = hasPartitions
	return s
}

func (ensureMIGMode) Name() string { return stepEnsureMIGMode }

func (ensureMIGMode) GPUWide() bool { return true }

func (s ensureMIGMode) Needed(p plan.Plan) []kind.Name {
	var gpus []kind.Name
	for _, name := range p.Names() {
		if name.IsPartition() && !s.static {
			gpus = append(gpus, kind.Whole(name.Address))
		}
	}
	return gpus
}

// Do switches the MIG mode on if it is off. It leaves alone a mode that an administrator has
// set, also one that waits for a reset.
func (s ensureMIGMode) Do(ctx context.Context, _ Work, e journal.Entry) (json.RawMessage, error) {
	address := e.Device.Address
	on, pending, err := s.mig.MIGMode(ctx, address)
	if err != nil {
		return nil, err
	}
	ours, err := s.saved(ctx, address)
	switch {
	case err != nil:
		return nil, err
	case on && !pending && ours != nil:
		// The mode was about to be switched off for earlier claims.
		return nil, s.mig.CancelPendingMIGMode(ctx, address)
	case on:
		return nil, nil
	case pending && ours == nil:
		return nil, fmt.Errorf("%w: an administrator has switched on the MIG mode of %s, and it waits for a reset; see %s",
			gpu.ErrNotSupported, plan.Describe(address), gpu.Page("docs/admin/mig.md#troubleshooting"))
	}
	if ours == nil {
		g, err := s.inventory.GPU(ctx, address)
		if err != nil {
			return nil, err
		}
		// On a GPU that needs a reset to change it, the mode survives a reboot.
		if err := s.save(ctx, address, false, g.MIGModeNeedsReset()); err != nil {
			return nil, err
		}
	}
	return nil, s.mig.SetMIGMode(ctx, address, true)
}

// Undo leaves the mode on while the GPU is in use or gone: the next claim that asks for the whole GPU,
// and every sweep, tries again.
func (s ensureMIGMode) Undo(ctx context.Context, w Work, e journal.Entry) error {
	return s.undo(ctx, w, e, func(err error) bool { return errors.Is(err, gpu.ErrInUse) || gpu.Gone(err) })
}

func (ensureMIGMode) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	return kind.Whole(d.Name.Address), nil, d.Name.IsPartition()
}

// Clean switches off the MIG mode that earlier claims left on GPUs without MIG devices
// in the record. It returns an error if the MIG mode of such a GPU is not this
// driver's. It reads the hardware, because the mode may have changed since the last
// scan.
func (s ensureMIGMode) Clean(ctx context.Context, w Work) error {
	for _, name := range w.Names() {
		if !name.IsWholeGPU() {
			continue
		}
		if err := s.disableMIGMode(ctx, name, w.Others); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	return nil
}

func (s ensureMIGMode) disableMIGMode(ctx context.Context, name kind.Name, others *journal.Others) error {
	g, err := s.inventory.GPU(ctx, name.Address)
	if err != nil || !g.MIG.Capable {
		return err
	}
	if err := s.revert(ctx, name.Address, others); err != nil {
		return err
	}
	if g.MIG.Enabled, _, err = s.mig.MIGMode(ctx, name.Address); err != nil {
		return err
	}
	for _, problem := range use.Check(g, false, name, use.Alone) {
		if problem.Aspect == use.MIGMode {
			return problem.Err
		}
	}
	return nil
}

// SwitchedModes returns the GPUs whose MIG mode claims have switched on, or are about
// to: a mode of any other GPU is an administrator's.
func (l List) SwitchedModes(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	if s, ok := find[ensureMIGMode](l); ok {
		return s.changedGPUs(ctx)
	}
	return nil, nil
}

// hasPartitions reports whether another claim has partitions of the GPU.
func hasPartitions(ctx context.Context, device kind.Name, others *journal.Others) (bool, error) {
	holders, err := others.List(ctx)
	return slices.ContainsFunc(holders, func(h journal.Holder) bool {
		return slices.ContainsFunc(h.Names(), func(n kind.Name) bool { return n.Address == device.Address && n.IsPartition() })
	}), err
}

// switchOff switches the MIG mode off unless partitions have stayed. It cancels a mode that
// waits for a reset, because an agent ended while it switched the mode. The error wraps
// [gpu.ErrInUse] if the GPU is in use; the mode is then left for a later try.
func (s ensureMIGMode) switchOff(ctx context.Context, address gpu.PCIAddress, partitions keptPartitions) (bool, error) {
	mig, err := s.mig.MIG(ctx, address)
	if err != nil {
		return false, err
	}
	if kept, err := partitions.isAnyThere(ctx, mig, address); err != nil || kept {
		return false, err
	}
	switch {
	case mig.Enabled && len(mig.Partitions) > 0:
		return false, fmt.Errorf("switch off the MIG mode of %s: %w by %s, which this driver has not made; nvidia-smi mig -dci and -dgi destroy it",
			plan.Describe(address), gpu.ErrInUse, describePartition(mig.Partitions[0]))
	case mig.Enabled:
		if err := s.mig.SetMIGMode(ctx, address, false); err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info("Switched off MIG mode", "device", kind.Whole(address))
	case mig.PendingEnabled:
		if err := s.mig.CancelPendingMIGMode(ctx, address); err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info("Canceled a MIG mode that waited for a reset", "device", kind.Whole(address))
	}
	return true, nil
}
