package claim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// settleDaemons stops the MPS daemons that no claim uses, and returns their
// names. A supervisor that is away is looked at with the next recovery.
func (m *Manager) settleDaemons(ctx context.Context) ([]string, error) {
	if m.MPS == nil {
		return nil, nil
	}
	all, err := m.MPS.MPSDaemons(ctx)
	if errors.Is(err, gpu.ErrNotReady) {
		klog.FromContext(ctx).V(2).Info("Whether MPS daemons are left over is for later to see", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	done := make([]bool, len(all))
	err = recoverAll(ctx, len(all), func(ctx context.Context, i int) (err error) {
		if done[i], err = m.settleDaemon(ctx, all[i].Daemon.Name); err != nil {
			return fmt.Errorf("daemon %s: %w", all[i].Daemon.Name, err)
		}
		return nil
	})
	var stopped []string
	for i, status := range all {
		if done[i] {
			stopped = append(stopped, status.Daemon.Name)
		}
	}
	return stopped, err
}

func (m *Manager) settleDaemon(ctx context.Context, daemon string) (stopped bool, err error) {
	name, err := kind.Parse(daemon)
	if err != nil {
		return false, err
	}
	// Every claim that uses the daemon has the device that it is named after.
	unlock, ok, err := m.locks.tryDevice(ctx, name)
	if err != nil || !ok {
		return false, err
	}
	defer unlock()
	around := &around{m: m}
	if unused, err := around.nobodyElse(ctx, stepStartMPS, daemon); err != nil || !unused {
		return false, err
	}
	if err := m.MPS.StopMPS(ctx, daemon); err != nil {
		return false, err
	}
	klog.FromContext(ctx).Info("Stopped an MPS daemon that no claim used", "device", daemon)
	return true, nil
}
