// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// setComputeMode puts a GPU into EXCLUSIVE_PROCESS while claims have MPS shares of it.
// The MPS server is then the only process that can have a context there, so a process
// that avoids MPS gets nothing.
//
// It comes before [startMPS], so that the server starts in the mode, and is undone
// after the daemon of the last share has stopped.
//
// The mode is set back with the last claim that has such a share, which need not be the
// first. So the fact that claims have set it is a file for each GPU and belongs to no
// claim. It is written before the mode is set and removed after it is set back. All of
// this happens under the GPU-wide lock. A mode without that file is an administrator's,
// and never changed.
type setComputeMode struct{ Options }

// computeModeRecord records that claims have changed the compute mode of a GPU from the
// default to EXCLUSIVE_PROCESS. It is of one boot: the driver forgets compute modes when
// it is unloaded.
type computeModeRecord struct {
	BootID string `json:"bootID"`
}

func (setComputeMode) Name() string { return "SetComputeMode" }

func (setComputeMode) GPUWide() bool { return true }

func (setComputeMode) Needed(p *plan.Plan) []string {
	var gpus []string
	for i, d := range p.Record.Devices {
		if d.Exclusive {
			gpus = append(gpus, p.Names[i].Address.DeviceName())
		}
	}
	return gpus
}

func (setComputeMode) Note(context.Context, Work, *journal.Entry) error { return nil }

func (s setComputeMode) Do(ctx context.Context, _ Work, e *journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	return s.exclude(ctx, name.Address)
}

func (s setComputeMode) Undo(ctx context.Context, w Work, e journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	err = s.restore(ctx, name.Address, w.Others)
	if err != nil && e.State != journal.Lost {
		// It does not keep a pod from going away. The next claim on the GPU and every
		// sweep try again.
		klog.FromContext(ctx).Info("The compute mode stays as it is for now", "step", s.Name(), "device", e.Device, "err", err)
		return nil
	}
	return err
}

func (setComputeMode) Lost(d journal.LostDevice) (string, []byte, bool) {
	return d.Name.Address.DeviceName(), nil, d.Name.IsWholeGPU() && d.Name.MPSDaemon() != ""
}

func (s setComputeMode) Leftovers(context.Context) ([]string, error) {
	return s.ExclusiveCompute.Changed.Keys()
}

func (s setComputeMode) Sweep(ctx context.Context, device string, others *journal.Others) (bool, error) {
	name, err := kind.Parse(device)
	if err != nil {
		return false, err
	}
	if err := s.restore(ctx, name.Address, others); err != nil {
		return false, err
	}
	ours, err := s.isOurs(ctx, name.Address)
	return !ours, err
}

// Clean sets back the compute mode that earlier claims left on GPUs for which the record
// does not need it. It returns an error that wraps [gpu.ErrInUse] if other claims still
// need the mode, and processes of the record would not be clients of their MPS server.
func (s setComputeMode) Clean(ctx context.Context, w Work) error {
	names, err := w.Names()
	if err != nil {
		return err
	}
	for i, name := range names {
		if !name.IsWholeGPU() || w.Devices[i].Exclusive {
			continue
		}
		if err := s.restore(ctx, name.Address, w.Others); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		ours, err := s.isOurs(ctx, name.Address)
		switch {
		case err != nil:
			return err
		case ours && w.Devices[i].MPS == nil:
			return fmt.Errorf("device %s: %w: its compute mode is %s for the MPS shares of other claims; it is free when their pods have ended", name, gpu.ErrInUse, gpu.ComputeModeExclusiveProcess)
		}
	}
	return nil
}

// ExclusiveGPUs returns the GPUs that claims have put into EXCLUSIVE_PROCESS, or are
// about to: a compute mode of any other GPU is an administrator's. It leaves out a GPU
// whose record cannot be read.
func ExclusiveGPUs(ctx context.Context, o Options) (map[gpu.PCIAddress]bool, error) {
	if o.ExclusiveCompute == nil {
		return nil, nil
	}
	keys, err := o.ExclusiveCompute.Changed.Keys()
	if err != nil {
		return nil, err
	}
	exclusive := make(map[gpu.PCIAddress]bool, len(keys))
	for _, key := range keys {
		name, err := kind.Parse(key)
		if err != nil {
			continue
		}
		ours, _, err := setComputeMode{o}.read(key)
		switch {
		case errors.Is(err, gpu.ErrCorrupt):
			klog.FromContext(ctx).V(2).Info("Cannot read the record of a compute mode", "device", key, "err", err)
		case err != nil:
			return nil, err
		case ours:
			exclusive[name.Address] = true
		}
	}
	return exclusive, nil
}

// read reports whether there is a record of a GPU's compute mode. A record of another
// boot is stale and does not count. The error wraps [gpu.ErrCorrupt] if the record
// cannot be decoded. read needs no lock.
func (s setComputeMode) read(key string) (ours, stale bool, err error) {
	r, err := readRecord[computeModeRecord](s.ExclusiveCompute.Changed, key, "compute mode of")
	if err != nil || r == nil {
		return false, false, err
	}
	return r.BootID == s.BootID, r.BootID != s.BootID, nil
}

// isOurs reports whether claims have changed the compute mode, or were about to.
func (s setComputeMode) isOurs(ctx context.Context, address gpu.PCIAddress) (bool, error) {
	key := address.DeviceName()
	ours, stale, err := s.read(key)
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		klog.FromContext(ctx).Error(err, "Cannot read the record of a compute mode, leaving it", "device", key)
		return false, s.ExclusiveCompute.Changed.Quarantine(key, err.Error())
	case stale:
		return false, s.ExclusiveCompute.Changed.Delete(key)
	}
	return ours, err
}

// exclude puts the GPU into EXCLUSIVE_PROCESS if it has the default mode, and records
// that. It leaves alone any other mode: an administrator's that is stricter keeps
// processes that avoid MPS away too.
func (s setComputeMode) exclude(ctx context.Context, address gpu.PCIAddress) error {
	now, err := s.ExclusiveCompute.Modes.ComputeMode(ctx, address)
	if err != nil {
		return err
	}
	if now != gpu.ComputeModeDefault {
		return nil
	}
	key := address.DeviceName()
	payload, err := json.Marshal(computeModeRecord{BootID: s.BootID})
	if err == nil {
		err = s.ExclusiveCompute.Changed.Write(key, payload)
	}
	if err != nil {
		return err
	}
	if err := s.ExclusiveCompute.Modes.SetComputeMode(ctx, address, gpu.ComputeModeExclusiveProcess); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Changed the compute mode", "device", key, "from", now, "to", gpu.ComputeModeExclusiveProcess)
	return nil
}

// restore sets the compute mode back to the default if claims have changed it, unless
// another claim needs it. It leaves alone a mode that an administrator has set since
// then. On a GPU without compute modes, because it is in MIG mode now, it does nothing.
func (s setComputeMode) restore(ctx context.Context, address gpu.PCIAddress, others *journal.Others) error {
	key := address.DeviceName()
	ours, err := s.isOurs(ctx, address)
	if err != nil || !ours {
		return err
	}
	if last, err := others.IsLastUser(ctx, s.Name(), key); err != nil || !last {
		return err
	}
	now, err := s.ExclusiveCompute.Modes.ComputeMode(ctx, address)
	if err == nil && now == gpu.ComputeModeExclusiveProcess {
		err = s.ExclusiveCompute.Modes.SetComputeMode(ctx, address, gpu.ComputeModeDefault)
	}
	switch {
	case errors.Is(err, gpu.ErrNotSupported):
		klog.FromContext(ctx).V(2).Info("The compute mode stays as it is for now", "step", s.Name(), "device", key, "err", err)
		return nil
	case err != nil:
		return err
	case now == gpu.ComputeModeExclusiveProcess:
		klog.FromContext(ctx).Info("Restored the compute mode", "device", key, "to", gpu.ComputeModeDefault)
	}
	return s.ExclusiveCompute.Changed.Delete(key)
}
