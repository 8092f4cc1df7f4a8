package claim

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const stepEnsureMIGMode = "EnsureMIGMode"

// ensureMIGMode has the MIG mode on before partitions are made on a GPU. Who
// switches it off again is told in migmode.go.
type ensureMIGMode struct{ m *Manager }

func (s ensureMIGMode) begin(context.Context, job, *entry) error { return nil }

func (s ensureMIGMode) do(ctx context.Context, _ job, e *entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	return s.m.modeOn(ctx, name.Address)
}

func (s ensureMIGMode) undo(ctx context.Context, j job, e entry) error {
	name, err := kind.Parse(e.Device)
	if err != nil {
		return err
	}
	err = s.m.modeOff(ctx, name.Address, j.around)
	if errors.Is(err, gpu.ErrInUse) {
		// No reason to keep a pod from going away. The next one that wants the
		// GPU whole, and every recovery, tries again.
		klog.FromContext(ctx).Info("MIG mode stays on for now", "step", stepEnsureMIGMode, "device", e.Device, "err", err)
		return nil
	}
	return err
}
