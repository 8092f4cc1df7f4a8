// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// setting is a setting of a GPU that claims change. The last of these claims restores it.
//
// The last claim need not be the first. So the original value is a file for each GPU and
// belongs to no claim. It is written before the setting is changed and removed after it is
// restored. All of this happens under the GPU-wide lock. A setting without that file is an
// administrator's, and never restored.
type setting[V comparable] struct {
	step      string // its name
	originals bootRecords[original[V]]
	// restore sets the original value, and reports false if the setting has to stay for now.
	restore func(ctx context.Context, address gpu.PCIAddress, before V) (restored bool, err error)
	// needed reports whether another claim needs the current value of the setting.
	needed func(ctx context.Context, device kind.Name, others *journal.Others) (bool, error)
	// unreadable is the original value if the record cannot be read. If it is nil, the
	// setting is left unchanged then.
	unreadable *V
}

// original is the value of a setting from before claims changed it.
type original[V comparable] struct {
	BootID string `json:"bootID"`
	// Before is the zero value if the record of the setting needs none.
	Before V `json:"before,omitzero"`
	// Lasts is set if the setting survives a reboot. In another boot, any other setting is
	// not this driver's.
	Lasts bool `json:"lasts,omitempty"`
}

func (o original[V]) isOf(boot string) bool { return o.BootID == boot || o.Lasts }

// newSetting returns a setting of a step that is restored when no other claim has begun the
// step. subject is for people.
func newSetting[V comparable](step, subject string, records *store.Store, boot string, restore func(context.Context, gpu.PCIAddress, V) (bool, error)) setting[V] {
	return setting[V]{
		step: step, originals: bootRecords[original[V]]{store: records, boot: boot, subject: subject}, restore: restore,
		needed: func(ctx context.Context, device kind.Name, others *journal.Others) (bool, error) {
			last, err := others.IsLastUser(ctx, step, device)
			return !last, err
		},
	}
}

// saved returns the original value; nil if claims have not changed the setting.
func (s setting[V]) saved(ctx context.Context, address gpu.PCIAddress) (*original[V], error) {
	o, corrupt, err := s.originals.load(ctx, kind.Whole(address))
	if !corrupt || err != nil || s.unreadable == nil {
		return o, err
	}
	o = &original[V]{BootID: s.originals.boot, Before: *s.unreadable}
	return o, s.originals.write(kind.Whole(address), *o)
}

// save records the original value, unless an earlier claim has. The caller then changes the
// setting. lasts is set if the change survives a reboot.
func (s setting[V]) save(ctx context.Context, address gpu.PCIAddress, before V, lasts bool) error {
	if o, err := s.saved(ctx, address); err != nil || o != nil {
		return err
	}
	return s.originals.write(kind.Whole(address), original[V]{BootID: s.originals.boot, Before: before, Lasts: lasts})
}

// revert restores the setting if claims have changed it and no other claim needs it. On a
// GPU that does not have the setting now, because its MIG mode has changed, it does nothing.
func (s setting[V]) revert(ctx context.Context, address gpu.PCIAddress, others *journal.Others) error {
	device := kind.Whole(address)
	o, err := s.saved(ctx, address)
	if err != nil || o == nil {
		return err
	}
	if needed, err := s.needed(ctx, device, others); err != nil || needed {
		return err
	}
	restored, err := s.restore(ctx, address, o.Before)
	switch {
	case errors.Is(err, gpu.ErrNotSupported):
		klog.FromContext(ctx).V(2).Info("A setting stays as it is for now", "step", s.step, "device", device, "err", err)
		return nil
	case err != nil || !restored:
		return err
	}
	return s.originals.delete(device)
}

// Leftovers returns the GPUs whose setting claims have changed.
func (s setting[V]) Leftovers(context.Context) ([]kind.Name, error) {
	devices, strange, err := s.originals.devices()
	return devices, errors.Join(strange, err)
}

// Sweep restores the setting of a GPU unless a claim needs it.
func (s setting[V]) Sweep(ctx context.Context, device kind.Name, others *journal.Others) (bool, error) {
	err := s.revert(ctx, device.Address, others)
	if errors.Is(err, gpu.ErrInUse) || gpu.Gone(err) {
		klog.FromContext(ctx).V(2).Info("A setting stays as it is for now", "step", s.step, "device", device, "err", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o, err := s.saved(ctx, device.Address)
	return o == nil && err == nil, err
}

// undo restores the setting of a GPU. It succeeds if that fails but must not keep a pod from
// going away: the next claim on the GPU and every sweep try again.
func (s setting[V]) undo(ctx context.Context, w Work, e journal.Entry, mayStay func(error) bool) error {
	err := s.revert(ctx, e.Device.Address, w.Others)
	if err != nil && mayStay(err) {
		klog.FromContext(ctx).Info("A setting stays as it is for now", "step", s.step, "device", e.Device, "err", err)
		return nil
	}
	return err
}

// changedGPUs returns the GPUs whose setting claims have changed, or are about to. It leaves
// out a GPU whose record cannot be read, and needs no lock.
func (s setting[V]) changedGPUs(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
	originals, err := s.originals.list(ctx)
	if err != nil {
		return nil, err
	}
	gpus := make(map[gpu.PCIAddress]bool, len(originals))
	for device := range originals {
		gpus[device.Address] = true
	}
	return gpus, nil
}
