// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// setTimeSlice sets the time slice of a GPU that a claim asks for. A claim that asks
// for another one at the same time has been refused.
//
// The time slice is restored with the last claim that changed it, which need not be
// the first. So the value from before is a file for each GPU and belongs to no claim.
// It is written before the time slice is changed and removed after it is restored. All
// of this happens under the GPU-wide lock.
type setTimeSlice struct{ Options }

// timeSliceRecord is the time slice of a GPU from before claims changed it. It is of
// one boot: the driver forgets time slices when it is unloaded.
type timeSliceRecord struct {
	BootID string        `json:"bootID"`
	Before gpu.TimeSlice `json:"before"`
}

func (setTimeSlice) Name() string { return "SetTimeSlice" }

func (setTimeSlice) GPUWide() bool { return true }

func (setTimeSlice) Needed(p *plan.Plan) []string {
	var gpus []string
	for i, d := range p.Record.Devices {
		if d.TimeSlice != "" {
			gpus = append(gpus, p.Names[i].Address.DeviceName())
		}
	}
	return gpus
}

func (setTimeSlice) Note(context.Context, Work, *journal.Entry) error { return nil }

func (s setTimeSlice) Do(ctx context.Context, w Work, e *journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	return s.change(ctx, name.Address, timeSliceOf(w.Record, name.Address))
}

func (s setTimeSlice) Undo(ctx context.Context, w Work, e journal.Entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	err = s.restore(ctx, name.Address, w.Others)
	if err != nil && e.State != journal.Lost {
		// It does not keep a pod from going away. Every sweep tries again.
		klog.FromContext(ctx).Info("The time slice stays as it is for now", "step", s.Name(), "device", e.Device, "err", err)
		return nil
	}
	return err
}

func (setTimeSlice) Lost(d journal.LostDevice) (string, []byte, bool) {
	return d.Name.Address.DeviceName(), nil, d.Name.IsWholeGPU()
}

func (s setTimeSlice) Leftovers(context.Context) ([]string, error) { return s.Intervals.Keys() }

func (s setTimeSlice) Sweep(ctx context.Context, device string, others *journal.Others) (bool, error) {
	name, err := kind.Parse(device)
	if err != nil {
		return false, err
	}
	if err := s.restore(ctx, name.Address, others); err != nil {
		return false, err
	}
	_, changed, err := s.before(ctx, name.Address.DeviceName())
	return !changed, err
}

// timeSliceOf returns the time slice that the claim asks for on a GPU.
func timeSliceOf(r *journal.Record, address gpu.PCIAddress) gpu.TimeSlice {
	for _, d := range r.Devices {
		if name, err := kind.Parse(d.Name); err == nil && name.Address == address && d.TimeSlice != "" {
			return d.TimeSlice
		}
	}
	return gpu.TimeSliceDefault
}

// before returns the time slice from before claims changed it; false if they have not.
func (s setTimeSlice) before(ctx context.Context, key string) (gpu.TimeSlice, bool, error) {
	r, err := readRecord[timeSliceRecord](s.Intervals, key, "time slice of")
	if errors.Is(err, gpu.ErrCorrupt) {
		klog.FromContext(ctx).Error(err, "Cannot read the earlier time slice, assuming the default", "device", key)
		if err := s.Intervals.Quarantine(key, err.Error()); err != nil {
			return "", false, err
		}
		return gpu.TimeSliceDefault, true, s.remember(key, gpu.TimeSliceDefault)
	}
	if err != nil || r == nil {
		return "", false, err
	}
	if r.BootID != s.BootID {
		return "", false, s.Intervals.Delete(key)
	}
	return r.Before, true, nil
}

func (s setTimeSlice) remember(key string, before gpu.TimeSlice) error {
	payload, err := json.Marshal(timeSliceRecord{BootID: s.BootID, Before: before})
	if err != nil {
		return err
	}
	return s.Intervals.Write(key, payload)
}

// change sets the time slice of a GPU and remembers the one before.
func (s setTimeSlice) change(ctx context.Context, address gpu.PCIAddress, want gpu.TimeSlice) error {
	now, err := s.TimeSlicing.TimeSlice(ctx, address)
	if err != nil {
		return err
	}
	key := address.DeviceName()
	_, changed, err := s.before(ctx, key)
	if err != nil {
		return err
	}
	if now == want {
		return nil
	}
	if !changed {
		if err := s.remember(key, now); err != nil {
			return err
		}
	}
	if err := s.TimeSlicing.SetTimeSlice(ctx, address, want); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Changed the time slice", "device", key, "from", now, "to", want)
	return nil
}

// restore sets a GPU's time slice to the one from before claims changed it, unless
// another claim needs the present one.
func (s setTimeSlice) restore(ctx context.Context, address gpu.PCIAddress, others *journal.Others) error {
	key := address.DeviceName()
	before, changed, err := s.before(ctx, key)
	if err != nil || !changed {
		return err
	}
	if last, err := others.IsLastUser(ctx, s.Name(), key); err != nil || !last {
		return err
	}
	if err := s.TimeSlicing.SetTimeSlice(ctx, address, before); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored the time slice", "device", key, "to", before)
	return s.Intervals.Delete(key)
}
