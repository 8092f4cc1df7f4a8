package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// A MIG mode that a claim switched on is switched off with the last claim's
// partition on that GPU, which may be another's. So the fact is a file for each
// GPU and belongs to no claim. It is written before the mode is switched on and
// removed after it is off. All of this happens under the GPU-wide lock.

// modeRecord says that claims have switched on the MIG mode of a GPU.
type modeRecord struct {
	BootID string `json:"bootID"`
	// Lasts says that the mode survives a reboot, as it does where it takes a
	// reset. In another boot, any other one is somebody else's.
	Lasts bool `json:"lasts,omitempty"`
}

// SwitchedModes returns the GPUs whose MIG mode claims have switched on, or are
// about to: a mode of any other GPU is an administrator's. It is nil on a node
// that prepares no MIG devices. A record that cannot be read counts for nobody.
func (m *Manager) SwitchedModes(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	if m.Partitioning == nil {
		return nil, nil
	}
	keys, err := m.Partitioning.Modes.Keys()
	if err != nil {
		return nil, err
	}
	switched := make(map[gpu.PCIAddress]bool, len(keys))
	for _, key := range keys {
		name, err := kind.Parse(key)
		if err != nil {
			continue
		}
		r, _, err := m.readMode(key)
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

// readMode returns the record of a GPU's MIG mode, nil if there is none. One of an
// earlier boot that the mode has not outlived is stale and not returned. readMode
// needs no lock. The error wraps [gpu.ErrCorrupt] if the record cannot be decoded.
func (m *Manager) readMode(key string) (r *modeRecord, stale bool, err error) {
	payload, err := m.Partitioning.Modes.Read(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case errors.Is(err, store.ErrCorrupt):
		return nil, false, fmt.Errorf("MIG mode of %s: %w: %w", key, gpu.ErrCorrupt, err)
	case err != nil:
		return nil, false, err
	}
	r = &modeRecord{}
	if err := json.Unmarshal(payload, r); err != nil {
		return nil, false, fmt.Errorf("MIG mode of %s: %w: %w", key, gpu.ErrCorrupt, err)
	}
	if r.BootID != m.BootID && !r.Lasts {
		return nil, true, nil
	}
	return r, false, nil
}

// modeOurs reports whether claims have switched on the MIG mode. The caller holds
// the lock of the GPU.
func (m *Manager) modeOurs(ctx context.Context, address gpu.PCIAddress) (bool, error) {
	if m.Partitioning == nil {
		return false, nil
	}
	key := address.DeviceName()
	r, stale, err := m.readMode(key)
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		klog.FromContext(ctx).Error(err, "It is not known any more who switched on a MIG mode; an administrator has to switch it off", "device", key)
		return false, m.Partitioning.Modes.Quarantine(key, err.Error())
	case err != nil:
		return false, err
	case stale:
		return false, m.Partitioning.Modes.Delete(key)
	}
	return r != nil, nil
}

// modeOn switches the MIG mode on if it is off, and remembers that. It leaves
// alone a mode that an administrator has set, also one that waits for a reset.
func (m *Manager) modeOn(ctx context.Context, address gpu.PCIAddress) error {
	on, pending, err := m.Partitioning.MIG.MIGMode(ctx, address)
	if err != nil {
		return err
	}
	ours, err := m.modeOurs(ctx, address)
	switch {
	case err != nil:
		return err
	case on && !pending && ours:
		// The mode was about to be switched off for the claims before.
		return m.Partitioning.MIG.CancelPendingMIGMode(ctx, address)
	case on:
		return nil
	case pending && !ours:
		return fmt.Errorf("%w: somebody has switched on the MIG mode of %s, and it waits for a reset; finish that with nvidia-smi -i %s --gpu-reset, or take it back with nvidia-smi -i %s -mig 0",
			gpu.ErrNotSupported, describe(address), address, address)
	}
	if !ours {
		g, err := m.Inventory.GPU(ctx, address)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(modeRecord{BootID: m.BootID, Lasts: g.MIGModeNeedsReset()})
		if err != nil {
			return err
		}
		if err := m.Partitioning.Modes.Write(address.DeviceName(), payload); err != nil {
			return err
		}
	}
	return m.Partitioning.MIG.SetMIGMode(ctx, address, true)
}

// modeOff switches a MIG mode that claims switched on off again, unless another
// claim has partitions there. A mode that waits for a reset, because an agent ended
// while it switched the mode, is taken back. The error wraps [gpu.ErrInUse] where
// somebody else uses the GPU; the mode is then left for a later try.
func (m *Manager) modeOff(ctx context.Context, address gpu.PCIAddress, around *around) error {
	ours, err := m.modeOurs(ctx, address)
	if err != nil || !ours {
		return err
	}
	others, err := around.others(ctx)
	if err != nil {
		return err
	}
	for _, other := range others {
		if slices.ContainsFunc(other.names, func(n kind.Name) bool { return n.Address == address && n.Kind == kind.MIG }) {
			return nil
		}
	}
	mig, err := m.Partitioning.MIG.MIG(ctx, address)
	switch {
	case err != nil:
		return err
	case mig.Enabled && len(mig.Partitions) > 0:
		return fmt.Errorf("switch off the MIG mode of %s: %w by %s, which this driver has not made; nvidia-smi mig -dci and -dgi destroy it",
			describe(address), gpu.ErrInUse, found(mig.Partitions[0]))
	case mig.Enabled:
		if err := m.Partitioning.MIG.SetMIGMode(ctx, address, false); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Switched off MIG mode", "device", address.DeviceName())
	case mig.PendingEnabled:
		if err := m.Partitioning.MIG.CancelPendingMIGMode(ctx, address); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Took back a MIG mode that waited for a reset", "device", address.DeviceName())
	}
	return m.Partitioning.Modes.Delete(address.DeviceName())
}

// wholeAgain takes the GPUs of which the record wants no MIG devices out of the
// MIG mode that claims before it left on, and reports an error for one that is in
// a MIG mode of somebody else. It asks the hardware: the mode may have changed
// since the inventory was read.
func (m *Manager) wholeAgain(ctx context.Context, j job) error {
	names, err := j.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name.Kind == kind.MIG || name.Kind == kind.Monitor {
			continue
		}
		if err := m.checkWhole(ctx, name.Address, j.around); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	return nil
}

func (m *Manager) checkWhole(ctx context.Context, address gpu.PCIAddress, around *around) error {
	g, err := m.Inventory.GPU(ctx, address)
	if err != nil {
		return err
	}
	on := g.MIG.Enabled
	if m.Partitioning != nil && g.MIG.Capable {
		if err := m.modeOff(ctx, address, around); err != nil {
			return err
		}
		if on, _, err = m.Partitioning.MIG.MIGMode(ctx, address); err != nil {
			return err
		}
	}
	if on {
		return fmt.Errorf("%w as a whole GPU: somebody has switched it to MIG mode; switch it back with nvidia-smi -i %s -mig 0 or cordon the node", gpu.ErrNotSupported, address)
	}
	return nil
}

// settleModes switches off the MIG modes that are left on, and returns the GPUs.
// One that is in use stays on for a later try.
func (m *Manager) settleModes(ctx context.Context) ([]gpu.PCIAddress, error) {
	if m.Partitioning == nil {
		return nil, nil
	}
	return m.settleGPUs(ctx, m.Partitioning.Modes, func(ctx context.Context, address gpu.PCIAddress) (bool, error) {
		err := m.modeOff(ctx, address, &around{m: m})
		if errors.Is(err, gpu.ErrInUse) {
			klog.FromContext(ctx).V(2).Info("MIG mode stays on for now", "device", address.DeviceName(), "err", err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		ours, err := m.modeOurs(ctx, address)
		return !ours, err
	})
}
