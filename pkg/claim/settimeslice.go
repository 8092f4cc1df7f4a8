package claim

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const stepSetTimeSlice = "SetTimeSlice"

// setTimeSlice gives a GPU the time slice that a claim wants. Claims that want
// another one at the same time have been refused. How it becomes again what it
// was is told in interval.go.
type setTimeSlice struct{ m *Manager }

func (s setTimeSlice) begin(context.Context, job, *entry) error { return nil }

func (s setTimeSlice) do(ctx context.Context, j job, e *entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	return s.m.changeInterval(ctx, name.Address, j.timeSlice(name.Address))
}

func (s setTimeSlice) undo(ctx context.Context, j job, e entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	if err := s.m.restoreInterval(ctx, name.Address, j.around); err != nil {
		// No reason to keep a pod from going away. Every recovery tries again.
		klog.FromContext(ctx).Info("The time slice stays as it is for now", "step", stepSetTimeSlice, "device", e.Device, "err", err)
	}
	return nil
}

// timeSlice that the claim wants of a GPU.
func (r *record) timeSlice(address gpu.PCIAddress) gpu.TimeSlice {
	for _, d := range r.Devices {
		if name, err := kind.Parse(d.Device); err == nil && name.Address == address && d.TimeSlice != "" {
			return d.TimeSlice
		}
	}
	return gpu.TimeSliceDefault
}
