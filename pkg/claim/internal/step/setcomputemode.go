// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// setComputeMode puts a GPU into EXCLUSIVE_PROCESS while claims have MPS shares of it.
// The MPS server is then the only process that can have a context there, so a process
// that avoids MPS gets nothing.
//
// It comes before [startMPS], so that the server starts in the mode, and is undone
// after the daemon of the last share has stopped.
type setComputeMode struct {
	modes ports.ComputeModes
	setting[gpu.ComputeMode]
}

var (
	_ Cleaner = setComputeMode{}
	_ Witness = setComputeMode{}
	_ Sweeper = setComputeMode{}
)

const stepSetComputeMode = "SetComputeMode"

func newSetComputeMode(parts ports.Node) Step {
	if parts.ExclusiveCompute == nil {
		return unsupported{setComputeMode{}}
	}
	modes := parts.ExclusiveCompute.Modes
	return setComputeMode{modes: modes, setting: newSetting(stepSetComputeMode, "compute mode", parts.ExclusiveCompute.Changed, parts.BootID,
		// Claims change only the default, so the record does not have it. A mode that an
		// administrator has set since then stays.
		func(ctx context.Context, address gpu.PCIAddress, _ gpu.ComputeMode) (bool, error) {
			now, err := modes.ComputeMode(ctx, address)
			if err != nil || now != gpu.ComputeModeExclusiveProcess {
				return err == nil, err
			}
			if err := modes.SetComputeMode(ctx, address, gpu.ComputeModeDefault); err != nil {
				return false, err
			}
			klog.FromContext(ctx).Info("Restored the compute mode", "device", kind.Whole(address), "to", gpu.ComputeModeDefault)
			return true, nil
		})}
}

func (setComputeMode) Name() string { return stepSetComputeMode }

func (setComputeMode) GPUWide() bool { return true }

func (setComputeMode) Needed(p plan.Plan) []kind.Name {
	var gpus []kind.Name
	for _, d := range p.Devices {
		if d.Exclusive {
			gpus = append(gpus, kind.Whole(d.Name.Address))
		}
	}
	return gpus
}

// Do puts the GPU into EXCLUSIVE_PROCESS if it has the default mode. It leaves alone any other
// mode: an administrator's that is stricter keeps processes that avoid MPS away too.
func (s setComputeMode) Do(ctx context.Context, _ Work, e journal.Entry) (json.RawMessage, error) {
	now, err := s.modes.ComputeMode(ctx, e.Device.Address)
	if err != nil || now != gpu.ComputeModeDefault {
		return nil, err
	}
	if err := s.save(ctx, e.Device.Address, "", false); err != nil {
		return nil, err
	}
	if err := s.modes.SetComputeMode(ctx, e.Device.Address, gpu.ComputeModeExclusiveProcess); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Changed the compute mode", "device", e.Device, "from", now, "to", gpu.ComputeModeExclusiveProcess)
	return nil, nil
}

func (s setComputeMode) Undo(ctx context.Context, w Work, e journal.Entry) error {
	return s.undo(ctx, w, e, func(error) bool { return e.State != journal.Lost })
}

func (setComputeMode) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	return kind.Whole(d.Name.Address), nil, d.Name.IsWholeGPU() && d.Name.MPSDaemon() != kind.Name{}
}

// Clean restores the compute mode of GPUs if earlier claims left it and the record
// needs none. It returns an error that wraps [gpu.ErrInUse] if other claims still need
// the mode, and processes of the record would not be clients of their MPS server.
func (s setComputeMode) Clean(ctx context.Context, w Work) error {
	for _, d := range w.Devices {
		if !d.Name.IsWholeGPU() || d.Exclusive {
			continue
		}
		if err := s.revert(ctx, d.Name.Address, w.Others); err != nil {
			return fmt.Errorf("device %s: %w", d.Name, err)
		}
		before, err := s.saved(ctx, d.Name.Address)
		switch {
		case err != nil:
			return err
		case before != nil && d.MPS == nil:
			return fmt.Errorf("device %s: %w: its compute mode is %s for the MPS shares of other claims; it is free when their pods have ended", d.Name, gpu.ErrInUse, gpu.ComputeModeExclusiveProcess)
		}
	}
	return nil
}

// ExclusiveGPUs returns the GPUs that claims have put into EXCLUSIVE_PROCESS, or are
// about to: a compute mode of any other GPU is an administrator's.
func (l List) ExclusiveGPUs(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	if s, ok := find[setComputeMode](l); ok {
		return s.changedGPUs(ctx)
	}
	return nil, nil
}
