// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// watcher watches one GPU.
type watcher struct {
	watch  *watch
	lib    nvml.Interface
	uuid   string
	index  int
	slot   *slot
	cancel context.CancelFunc
	// err is why the watcher does not watch now. Only the watch uses it.
	err error
}

// run watches the GPU until ctx ends. It retries after a failure, unless the GPU
// does not support events.
func (r *watcher) run(ctx context.Context) {
	pause := eventWait
	for {
		began := time.Now()
		err := r.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > rewatchTime {
			pause = eventWait
		}
		var again <-chan time.Time
		if !errors.Is(err, gpu.ErrNotSupported) {
			again = time.After(pause)
		}
		klog.FromContext(ctx).Info("Cannot watch the events of a GPU", "device", r.uuid, "err", err, "retryAfter", pause)
		r.report(watcherState{err: err})
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
		pause = rewatchTime
	}
}

// watchOnce watches the GPU with one event set. It returns nil when ctx ends.
func (r *watcher) watchOnce(ctx context.Context) (err error) {
	set, err := r.register(ctx)
	if errors.Is(err, gpu.ErrLost) {
		r.send(ctx, gpu.Event{Kind: gpu.EventLost, UUID: r.uuid})
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, check("free its NVML event set", set.Free()))
	}()
	r.report(watcherState{})
	for ctx.Err() == nil {
		data, ret := r.wait(ctx, set)
		switch ret {
		case nvml.SUCCESS:
			if e, ok := r.event(ctx, data); ok {
				r.send(ctx, e)
			}
		case nvml.ERROR_TIMEOUT:
		case nvml.ERROR_GPU_IS_LOST:
			// NVML does not report which GPU.
			r.send(ctx, gpu.Event{Kind: gpu.EventLost})
			return check("wait for its events", ret)
		default:
			return check("wait for its events", ret)
		}
	}
	return nil
}

// register creates an event set for the GPU. It holds the GPU's guard, so that other
// calls fail if it hangs. It runs in the watcher's goroutine, which alone uses the
// set.
func (r *watcher) register(ctx context.Context) (nvml.EventSet, error) {
	call, err := r.slot.guard.enter(ctx, fmt.Sprintf("register for events of GPU %d", r.index), answerLimit)
	if err != nil {
		return nil, err
	}
	defer r.slot.guard.leave(call)
	device, ret := r.lib.DeviceGetHandleByIndex(r.index)
	if err := check("get its handle", ret); err != nil {
		return nil, err
	}
	r.watch.handles.add(device, r.uuid)
	supported, ret := device.GetSupportedEventTypes()
	if err := check("read the events it supports", ret); err != nil {
		return nil, err
	}
	var wanted uint64
	for kind := range eventKinds {
		wanted |= kind & supported
	}
	if wanted == 0 {
		return nil, fmt.Errorf("register for its events: %w", gpu.ErrNotSupported)
	}
	set, ret := r.lib.EventSetCreate()
	if err := check("create an NVML event set", ret); err != nil {
		return nil, err
	}
	if err := check("register for its events", device.RegisterEvents(wanted, set)); err != nil {
		return nil, errors.Join(err, check("free its NVML event set", set.Free()))
	}
	return set, nil
}

// wait waits for an event. It does not hold the guard, so other calls for the GPU
// run meanwhile.
func (r *watcher) wait(ctx context.Context, set nvml.EventSet) (nvml.EventData, nvml.Return) {
	logger := klog.FromContext(ctx)
	hangs := time.AfterFunc(eventWait+answerLimit, func() {
		logger.Info("NVML does not return from waiting for events", "device", r.uuid)
	})
	defer hangs.Stop()
	return set.Wait(uint32(eventWait.Milliseconds()))
}

// event converts an event of NVML; ok is false if its type is not in eventKinds.
func (r *watcher) event(ctx context.Context, data nvml.EventData) (e gpu.Event, ok bool) {
	e.Kind, ok = eventKinds[data.EventType]
	if !ok {
		return gpu.Event{}, false
	}
	e.UUID = r.watch.handles.uuid(data.Device)
	if e.UUID == "" {
		klog.FromContext(ctx).Info("Event of a GPU that is not watched", "watched", r.uuid, "kind", e.Kind, "data", data.EventData)
	}
	if e.Kind == gpu.EventXID {
		e.XID = data.EventData
		if kind, special := xidKinds[e.XID]; special {
			e.Kind = kind
		}
	}
	return e, true
}

// handles are the UUIDs of the watched GPUs by their handles. NVML has one handle for each
// GPU, so an event can be attributed without a call: a GPU with an event may hang, or no
// longer tell its UUID.
type handles struct {
	mu    sync.Mutex
	uuids map[nvml.Device]string
}

// add records the handle of a GPU. After a change of the driver the GPU, or its handle, may
// be another.
func (h *handles) add(device nvml.Device, uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.uuids, func(_ nvml.Device, other string) bool { return other == uuid })
	h.uuids[device] = uuid
}

// uuid returns the UUID of a GPU; empty if it is not known.
func (h *handles) uuid(device nvml.Device) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uuids[device]
}

func (r *watcher) send(ctx context.Context, e gpu.Event) {
	select {
	case r.watch.events <- e:
	case <-ctx.Done():
	}
}

func (r *watcher) report(s watcherState) {
	s.watcher = r
	select {
	case r.watch.states <- s:
	case <-r.watch.quit:
	}
}
