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
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// ensureMIGMode switches the MIG mode of a GPU on before partitions are made there.
//
// A MIG mode that a claim switched on is switched off with the last claim's partition
// on that GPU, which may be another claim's. So the fact is a file for each GPU and
// belongs to no claim. It is written before the mode is switched on and removed after
// it is off. All of this happens under the GPU-wide lock.
type ensureMIGMode struct{ Options }

// modeRecord records that claims have switched on the MIG mode of a GPU.
type modeRecord struct {
	BootID string `json:"bootID"`
	// Lasts is set if the mode survives a reboot, as it does on a GPU that needs a
	// reset to change it. In another boot, any other mode is not this driver's.
	Lasts bool `json:"lasts,omitempty"`
}

func (ensureMIGMode) Name() string { return "EnsureMIGMode" }

func (ensureMIGMode) GPUWide() bool { return true }

func (s ensureMIGMode) Needed(p *plan.Plan) []string {
	var gpus []string
	for _, name := range p.Names {
		if name.IsPartition() && !s.Partitioning.Static {
			gpus = append(gpus, name.Address.DeviceName())
		}
	}
	return gpus
}

func (ensureMIGMode) Note(context.Context, Work, *journal.Entry) error { return nil }

func (s ensureMIGMode) Do(ctx context.Context, _ Work, e *journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	return s.switchOn(ctx, name.Address)
}

func (s ensureMIGMode) Undo(ctx context.Context, w Work, e journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	err = s.switchOff(ctx, name.Address, w.Others)
	if errors.Is(err, gpu.ErrInUse) {
		// It does not keep a pod from going away. The next one that asks for the
		// whole GPU, and every sweep, tries again.
		klog.FromContext(ctx).Info("MIG mode stays on for now", "step", s.Name(), "device", e.Device, "err", err)
		return nil
	}
	return err
}

func (ensureMIGMode) Lost(d journal.LostDevice) (string, []byte, bool) {
	return d.Name.Address.DeviceName(), nil, d.Name.IsPartition()
}

func (s ensureMIGMode) Leftovers(context.Context) ([]string, error) {
	return s.Partitioning.Modes.Keys()
}

func (s ensureMIGMode) Sweep(ctx context.Context, device string, others *journal.Others) (bool, error) {
	name, err := kind.Parse(device)
	if err != nil {
		return false, err
	}
	err = s.switchOff(ctx, name.Address, others)
	if errors.Is(err, gpu.ErrInUse) {
		klog.FromContext(ctx).V(2).Info("MIG mode stays on for now", "device", device, "err", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ours, err := s.isOurs(ctx, name.Address)
	return !ours, err
}

// Clean switches off the MIG mode that earlier claims left on GPUs for which the record
// has no MIG devices. It returns an error if the MIG mode of such a GPU is not this
// driver's. It reads the hardware, because the mode may have changed since the last
// scan.
func (s ensureMIGMode) Clean(ctx context.Context, w Work) error {
	names, err := w.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
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
	g, err := s.Inventory.GPU(ctx, name.Address)
	if err != nil || !g.MIG.Capable {
		return err
	}
	if err := s.switchOff(ctx, name.Address, others); err != nil {
		return err
	}
	if g.MIG.Enabled, _, err = s.Partitioning.MIG.MIGMode(ctx, name.Address); err != nil {
		return err
	}
	for _, problem := range use.Check(use.Facts{GPU: g}, use.Use{Device: name, Sharing: use.Alone}) {
		if problem.Cause == use.MIGMode {
			return problem.Err
		}
	}
	return nil
}

// SwitchedModes returns the GPUs whose MIG mode claims have switched on, or are about
// to: a mode of any other GPU is an administrator's. It is nil on a node that prepares
// no MIG devices. It leaves out a GPU whose record cannot be read.
func SwitchedModes(ctx context.Context, o Options) (map[gpu.PCIAddress]bool, error) {
	if o.Partitioning == nil {
		return nil, nil
	}
	keys, err := o.Partitioning.Modes.Keys()
	if err != nil {
		return nil, err
	}
	switched := make(map[gpu.PCIAddress]bool, len(keys))
	for _, key := range keys {
		name, err := kind.Parse(key)
		if err != nil {
			continue
		}
		r, _, err := ensureMIGMode{o}.read(key)
		switch {
		case errors.Is(err, gpu.ErrCorrupt):
			klog.FromContext(ctx).V(2).Info("Cannot read the record of a MIG mode", "device", key, "err", err)
		case err != nil:
			return nil, err
		case r != nil:
			switched[name.Address] = true
		}
	}
	return switched, nil
}

// read returns the record of a GPU's MIG mode, nil if there is none. A record of an
// earlier boot is stale and not returned, unless its mode has survived the reboot. The
// error wraps [gpu.ErrCorrupt] if the record cannot be decoded. read needs no lock.
func (s ensureMIGMode) read(key string) (r *modeRecord, stale bool, err error) {
	r, err = readRecord[modeRecord](s.Partitioning.Modes, key, "MIG mode of")
	if err != nil || r == nil {
		return nil, false, err
	}
	if r.BootID != s.BootID && !r.Lasts {
		return nil, true, nil
	}
	return r, false, nil
}

// isOurs reports whether claims have switched on the MIG mode.
func (s ensureMIGMode) isOurs(ctx context.Context, address gpu.PCIAddress) (bool, error) {
	key := address.DeviceName()
	r, stale, err := s.read(key)
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		klog.FromContext(ctx).Error(err, "Cannot read a record of a MIG mode, leaving the mode on", "device", key)
		return false, s.Partitioning.Modes.Quarantine(key, err.Error())
	case err != nil:
		return false, err
	case stale:
		return false, s.Partitioning.Modes.Delete(key)
	}
	return r != nil, nil
}

// switchOn switches the MIG mode on if it is off, and records that. It leaves alone a
// mode that an administrator has set, also one that waits for a reset.
func (s ensureMIGMode) switchOn(ctx context.Context, address gpu.PCIAddress) error {
	on, pending, err := s.Partitioning.MIG.MIGMode(ctx, address)
	if err != nil {
		return err
	}
	ours, err := s.isOurs(ctx, address)
	switch {
	case err != nil:
		return err
	case on && !pending && ours:
		// The mode was about to be switched off for earlier claims.
		return s.Partitioning.MIG.CancelPendingMIGMode(ctx, address)
	case on:
		return nil
	case pending && !ours:
		return fmt.Errorf("%w: an administrator has switched on the MIG mode of %s, and it waits for a reset; finish that with nvidia-smi -i %s --gpu-reset, or take it back with nvidia-smi -i %s -mig 0",
			gpu.ErrNotSupported, plan.Describe(address), address, address)
	}
	if !ours {
		g, err := s.Inventory.GPU(ctx, address)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(modeRecord{BootID: s.BootID, Lasts: g.MIGModeNeedsReset()})
		if err != nil {
			return err
		}
		if err := s.Partitioning.Modes.Write(address.DeviceName(), payload); err != nil {
			return err
		}
	}
	return s.Partitioning.MIG.SetMIGMode(ctx, address, true)
}

// switchOff switches off a MIG mode that claims switched on, unless another claim has
// partitions there, or partitions have stayed. It cancels a mode that waits for a reset,
// because an agent ended while it switched the mode. The error wraps [gpu.ErrInUse] if the
// GPU is in use; the mode is then left for a later try.
func (s ensureMIGMode) switchOff(ctx context.Context, address gpu.PCIAddress, others *journal.Others) error {
	ours, err := s.isOurs(ctx, address)
	if err != nil || !ours {
		return err
	}
	holders, err := others.List(ctx)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if slices.ContainsFunc(h.Names, func(n kind.Name) bool { return n.Address == address && n.IsPartition() }) {
			return nil
		}
	}
	mig, err := s.Partitioning.MIG.MIG(ctx, address)
	if err != nil {
		return err
	}
	if kept, err := createPartition(s).isAnyThere(ctx, mig, address); err != nil || kept {
		return err
	}
	switch {
	case mig.Enabled && len(mig.Partitions) > 0:
		return fmt.Errorf("switch off the MIG mode of %s: %w by %s, which this driver has not made; nvidia-smi mig -dci and -dgi destroy it",
			plan.Describe(address), gpu.ErrInUse, describePartition(mig.Partitions[0]))
	case mig.Enabled:
		if err := s.Partitioning.MIG.SetMIGMode(ctx, address, false); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Switched off MIG mode", "device", address.DeviceName())
	case mig.PendingEnabled:
		if err := s.Partitioning.MIG.CancelPendingMIGMode(ctx, address); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Canceled a MIG mode that waited for a reset", "device", address.DeviceName())
	}
	return s.Partitioning.Modes.Delete(address.DeviceName())
}
