package controller

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

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// fault is what is known against one GPU.
type fault struct {
	UUID string `json:"uuid"`
	// Address is where the GPU was last seen; empty if it never was.
	Address string  `json:"address,omitempty"`
	Causes  []cause `json:"causes"`
}

// damaged is the cause of a GPU whose record cannot be read.
const damaged = "record-damaged"

// faultRecords keep faults beyond the end of the agent: one record for each GPU
// that has any. They need not outlive the boot, which resets every GPU; what
// still needs repair after it, the driver asks for. So they are not synced, and
// the boot ID is in the key: a record that a power failure ruined is of another
// boot and void.
type faultRecords struct {
	store *store.Store // nil keeps nothing
	boot  string
	// saving is held over a write, so that the last state of a fault is the last
	// one written.
	saving sync.Mutex
}

func (r *faultRecords) key(uuid string) string { return uuid + "-" + r.boot }

// load returns the faults of this boot and deletes the records of others. A
// record that cannot be read goes to quarantine and leaves its GPU unhealthy,
// because it said that the GPU had failed.
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
			f = fault{UUID: uuid, Causes: []cause{{
				Value: damaged, Message: "the GPU had failed, and the record of how is damaged", First: now, Last: now,
			}}}
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

// saveFaults writes the faults that have changed. What it fails at is written
// with the next scan.
func (c *Controller) saveFaults(ctx context.Context) {
	if c.records.store == nil {
		return
	}
	c.records.saving.Lock()
	defer c.records.saving.Unlock()
	c.mu.Lock()
	unsaved := c.inventory.takeUnsaved()
	c.mu.Unlock()
	var errs []error
	for _, uuid := range slices.Sorted(maps.Keys(unsaved)) {
		if err := c.records.write(unsaved[uuid]); err != nil {
			errs = append(errs, err)
			c.mu.Lock()
			c.inventory.unsaved[uuid] = true
			c.mu.Unlock()
		}
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record GPU faults, will retry")
	}
}
