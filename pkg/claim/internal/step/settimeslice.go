// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// setTimeSlice sets the time slice of a GPU that a claim asks for. A claim that asks
// for another one at the same time has been refused.
type setTimeSlice struct {
	slices ports.TimeSlices
	setting[gpu.TimeSlice]
}

var (
	_ Witness = setTimeSlice{}
	_ Sweeper = setTimeSlice{}
)

const stepSetTimeSlice = "SetTimeSlice"

func newSetTimeSlice(parts ports.Node) Step {
	if parts.TimeSlicing == nil {
		return unsupported{setTimeSlice{}}
	}
	timeSlices, standard := parts.TimeSlicing.Slices, gpu.TimeSliceDefault
	restored := newSetting(stepSetTimeSlice, "time slice", parts.TimeSlicing.Intervals, parts.BootID, func(ctx context.Context, address gpu.PCIAddress, before gpu.TimeSlice) (bool, error) {
		if err := timeSlices.SetTimeSlice(ctx, address, before); err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info("Restored the time slice", "device", kind.Whole(address), "to", before)
		return true, nil
	})
	restored.unreadable = &standard
	return setTimeSlice{slices: timeSlices, setting: restored}
}

func (setTimeSlice) Name() string { return stepSetTimeSlice }

func (setTimeSlice) GPUWide() bool { return true }

func (setTimeSlice) Needed(p plan.Plan) []kind.Name {
	var gpus []kind.Name
	for _, d := range p.Devices {
		if d.TimeSlice != "" {
			gpus = append(gpus, kind.Whole(d.Name.Address))
		}
	}
	return gpus
}

func (s setTimeSlice) Do(ctx context.Context, w Work, e journal.Entry) (json.RawMessage, error) {
	now, err := s.slices.TimeSlice(ctx, e.Device.Address)
	if err != nil {
		return nil, err
	}
	want := timeSliceOf(w.Plan, e.Device.Address)
	if now == want {
		return nil, nil
	}
	if err := s.save(ctx, e.Device.Address, now, false); err != nil {
		return nil, err
	}
	if err := s.slices.SetTimeSlice(ctx, e.Device.Address, want); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Changed the time slice", "device", e.Device, "from", now, "to", want)
	return nil, nil
}

func (s setTimeSlice) Undo(ctx context.Context, w Work, e journal.Entry) error {
	return s.undo(ctx, w, e, func(error) bool { return e.State != journal.Lost })
}

func (setTimeSlice) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	return kind.Whole(d.Name.Address), nil, d.Name.IsWholeGPU()
}

// timeSliceOf returns the time slice that the claim asks for on a GPU.
func timeSliceOf(p plan.Plan, address gpu.PCIAddress) gpu.TimeSlice {
	for _, d := range p.Devices {
		if d.Name.Address == address && d.TimeSlice != "" {
			return d.TimeSlice
		}
	}
	return gpu.TimeSliceDefault
}
