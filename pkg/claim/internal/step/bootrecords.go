// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// bootRecords are records about devices or GPUs, one for each, that belong to no claim. A
// record of another boot is stale: the driver forgets its settings when it is unloaded.
type bootRecords[R interface{ isOf(boot string) bool }] struct {
	store *store.Store
	boot  string
	// subject of the records, for people.
	subject string
}

// read returns the record of a device; nil if there is none or it is stale. The error for a
// record that cannot be decoded wraps [gpu.ErrCorrupt]. read needs no lock and changes nothing.
func (b bootRecords[R]) read(device kind.Name) (r *R, stale bool, err error) {
	payload, err := b.store.Read(device.String())
	r = new(R)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err == nil:
		err = json.Unmarshal(payload, r)
	case !errors.Is(err, store.ErrCorrupt):
		return nil, false, err
	}
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%s of %s: %w: %w", b.subject, device, gpu.ErrCorrupt, err)
	case !(*r).isOf(b.boot):
		return nil, true, nil
	}
	return r, false, nil
}

// load is like read, and removes a stale record and one that cannot be decoded. The caller has
// the GPU-wide lock.
func (b bootRecords[R]) load(ctx context.Context, device kind.Name) (r *R, corrupt bool, err error) {
	r, stale, err := b.read(device)
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		klog.FromContext(ctx).Error(err, "Cannot read a record, moving it to quarantine", "device", device)
		return nil, true, b.store.Quarantine(device.String(), err.Error())
	case stale:
		return nil, false, b.store.Delete(device.String())
	}
	return r, false, err
}

func (b bootRecords[R]) write(device kind.Name, r R) error {
	payload, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.store.Write(device.String(), payload)
}

func (b bootRecords[R]) delete(device kind.Name) error { return b.store.Delete(device.String()) }

// devices returns the devices that have a record, in ascending order. strange names the records
// of no device: nothing uses them, and only a sweep reports them.
func (b bootRecords[R]) devices() (devices []kind.Name, strange, err error) {
	keys, err := b.store.Keys()
	for _, key := range keys {
		var device kind.Name
		if bad := device.UnmarshalText([]byte(key)); bad != nil {
			strange = errors.Join(strange, fmt.Errorf("%s: %w", b.subject, bad))
			continue
		}
		devices = append(devices, device)
	}
	return devices, strange, err
}

// list returns the records that can be read and are not stale, by device. It needs no lock.
func (b bootRecords[R]) list(ctx context.Context) (map[kind.Name]R, error) {
	devices, _, err := b.devices()
	if err != nil {
		return nil, err
	}
	all := make(map[kind.Name]R, len(devices))
	for _, device := range devices {
		r, _, err := b.read(device)
		switch {
		case errors.Is(err, gpu.ErrCorrupt):
			klog.FromContext(ctx).V(2).Info("Cannot read a record", "device", device, "err", err)
		case err != nil:
			return nil, err
		case r != nil:
			all[device] = *r
		}
	}
	return all, nil
}
