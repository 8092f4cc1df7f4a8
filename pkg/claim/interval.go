package claim

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// The time slice of a GPU that claims change becomes again what it was with the
// last of them, which need not be the first. So what it was is a file for each
// GPU and belongs to no claim. It is written before the time slice is changed
// and removed after it is restored. All of this happens under the GPU-wide
// lock.

// intervalRecord says what a GPU's time slice was before claims changed it. It
// is of one boot: the driver forgets time slices when it is unloaded.
type intervalRecord struct {
	BootID string        `json:"bootID"`
	Before gpu.TimeSlice `json:"before"`
}

// intervalBefore gives what the time slice was before claims changed it; false
// where they have not.
func (m *Manager) intervalBefore(ctx context.Context, key string) (gpu.TimeSlice, bool, error) {
	payload, err := m.Intervals.Read(key)
	var r intervalRecord
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err == nil:
		err = json.Unmarshal(payload, &r)
	case !errors.Is(err, store.ErrCorrupt):
		return "", false, err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the time slice was before claims changed it is not known any more, and taken for the default", "device", key)
		if err := m.Intervals.Quarantine(key, err.Error()); err != nil {
			return "", false, err
		}
		return gpu.TimeSliceDefault, true, m.rememberInterval(key, gpu.TimeSliceDefault)
	}
	if r.BootID != m.BootID {
		return "", false, m.Intervals.Delete(key)
	}
	return r.Before, true, nil
}

func (m *Manager) rememberInterval(key string, before gpu.TimeSlice) error {
	payload, err := json.Marshal(intervalRecord{BootID: m.BootID, Before: before})
	if err != nil {
		return err
	}
	return m.Intervals.Write(key, payload)
}

// changeInterval sets the time slice of a GPU and remembers what it was.
func (m *Manager) changeInterval(ctx context.Context, address gpu.PCIAddress, want gpu.TimeSlice) error {
	now, err := m.TimeSlicing.TimeSlice(ctx, address)
	if err != nil {
		return err
	}
	key := address.DeviceName()
	_, changed, err := m.intervalBefore(ctx, key)
	if err != nil {
		return err
	}
	if now == want {
		return nil
	}
	if !changed {
		if err := m.rememberInterval(key, now); err != nil {
			return err
		}
	}
	if err := m.TimeSlicing.SetTimeSlice(ctx, address, want); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Changed the time slice", "device", key, "from", now, "to", want)
	return nil
}

// restoreInterval gives a GPU the time slice that it had before claims changed
// it, unless other claims want it as it is.
func (m *Manager) restoreInterval(ctx context.Context, address gpu.PCIAddress, around *around) error {
	key := address.DeviceName()
	before, changed, err := m.intervalBefore(ctx, key)
	if err != nil || !changed {
		return err
	}
	if last, err := around.nobodyElse(ctx, stepSetTimeSlice, key); err != nil || !last {
		return err
	}
	if err := m.TimeSlicing.SetTimeSlice(ctx, address, before); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored the time slice", "device", key, "to", before)
	return m.Intervals.Delete(key)
}

// settleIntervals restores the time slices that no claim wants any more, and
// returns the GPUs.
func (m *Manager) settleIntervals(ctx context.Context) ([]gpu.PCIAddress, error) {
	if m.TimeSlicing == nil {
		return nil, nil
	}
	return m.settleGPUs(ctx, m.Intervals, func(ctx context.Context, address gpu.PCIAddress) (bool, error) {
		if err := m.restoreInterval(ctx, address, &around{m: m}); err != nil {
			return false, err
		}
		_, changed, err := m.intervalBefore(ctx, address.DeviceName())
		return !changed, err
	})
}
