// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// fault is the causes for which one GPU is unhealthy.
type fault struct {
	UUID string `json:"uuid"`
	// Address is where the GPU was last seen; empty if it never was.
	Address string  `json:"address,omitempty"`
	Causes  []cause `json:"causes"`
}

// damaged is the cause of a GPU whose record cannot be read.
const damaged = "record-damaged"

// faultRecords keeps faults beyond the end of the agent: one record for each GPU
// that has any. A record need not outlive the boot, which resets every GPU: the
// driver asks for any repair that is still needed after it. So records are not
// synced, and the boot ID is in the key: a record that a power failure damaged
// belongs to another boot and is void.
type faultRecords struct {
	store *store.Store // nil keeps nothing
	boot  string
	// saving is held during a write, so that the last state of a fault is written
	// last.
	saving sync.Mutex
}

func (r *faultRecords) key(uuid string) string { return uuid + "-" + r.boot }

// load returns the faults of this boot and deletes the records of others. A
// record that cannot be read goes to quarantine, and its GPU stays unhealthy:
// only a GPU that has failed has a record.
func (r *faultRecords) load(ctx context.Context, now time.Time) map[string]fault {
	faults := map[string]fault{}
	if r.store == nil {
		return faults
	}
	logger := klog.FromContext(ctx)
	keys, err := r.store.Keys()
	if err != nil {
		logger.Error(err, "Cannot list the records of GPU faults")
	}
	for _, key := range keys {
		uuid, thisBoot := strings.CutSuffix(key, "-"+r.boot)
		if !thisBoot {
			if err := r.store.Delete(key); err != nil {
				logger.Error(err, "Cannot delete a GPU fault of another boot", "record", key)
			}
			continue
		}
		f, err := r.read(uuid)
		if err != nil {
			logger.Error(err, "Cannot read the record of a GPU fault", "uuid", uuid)
			if err := r.store.Quarantine(key, err.Error()); err != nil {
				logger.Error(err, "Cannot quarantine the record of a GPU fault", "uuid", uuid)
			}
			c := newCause(damaged)
			c.First, c.Last = now, now
			f = fault{UUID: uuid, Causes: []cause{c}}
			if err := r.write(f); err != nil {
				logger.Error(err, "Cannot write the record of a GPU fault", "uuid", uuid)
			}
		}
		faults[uuid] = f
		logger.Info("GPU is still unhealthy", "uuid", uuid, "device", f.Address, "why", messages(f.Causes))
	}
	return faults
}

func (r *faultRecords) read(uuid string) (fault, error) {
	payload, err := r.store.Read(r.key(uuid))
	if err != nil {
		return fault{}, err
	}
	var f fault
	if err := json.Unmarshal(payload, &f); err != nil {
		return fault{}, fmt.Errorf("read record of GPU %s: %w: %w", uuid, gpu.ErrCorrupt, err)
	}
	if f.UUID != uuid || len(f.Causes) == 0 {
		return fault{}, fmt.Errorf("read record of GPU %s: %w: it is of GPU %q and has %d causes", uuid, gpu.ErrCorrupt, f.UUID, len(f.Causes))
	}
	return f, nil
}

// write replaces the record of a GPU, or deletes it if there is no cause.
func (r *faultRecords) write(f fault) error {
	if len(f.Causes) == 0 {
		return r.store.Delete(r.key(f.UUID))
	}
	payload, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return r.store.Write(r.key(f.UUID), payload)
}

// saveFaults writes the faults that have changed. It tries failed writes again
// after the next scan.
func (i *Inventory) saveFaults(ctx context.Context) {
	if i.records.store == nil {
		return
	}
	i.records.saving.Lock()
	defer i.records.saving.Unlock()
	i.mu.Lock()
	unsaved := i.known.takeUnsaved()
	i.mu.Unlock()
	var errs []error
	for _, uuid := range slices.Sorted(maps.Keys(unsaved)) {
		if err := i.records.write(unsaved[uuid]); err != nil {
			errs = append(errs, err)
			i.mu.Lock()
			i.known.unsaved[uuid] = true
			i.mu.Unlock()
		}
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record GPU faults, will retry")
	}
}
