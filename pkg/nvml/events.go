// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// eventWait bounds one wait for events, and with it how long a Watch takes to
	// end. It is also when to watch a GPU again after that has failed.
	eventWait = time.Second
	// rewatchTime is the same after it has failed more than once.
	rewatchTime = 30 * time.Second
)

// eventKinds are the NVML events that are asked for, as far as a GPU supports
// them.
var eventKinds = map[uint64]gpu.EventKind{
	nvml.EventTypeXidCriticalError:      gpu.EventXID,
	nvml.EventTypeDoubleBitEccError:     gpu.EventECC,
	nvml.EventTypeDramRetirementFailure: gpu.EventECC,
	nvml.EventTypeFatalPoisonError:      gpu.EventECC,
	nvml.EventTypeNonFatalPoisonError:   gpu.EventECC,
	nvml.EventTypeGpuUnavailableError:   gpu.EventLost,
	nvml.EventTypeGpuRecoveryAction:     gpu.EventRecovery,
}

// xidKinds are the XIDs that say what has happened by themselves; see NVIDIA's
// XID catalogue.
var xidKinds = map[uint64]gpu.EventKind{
	74: gpu.EventLink, // NVLink error
	79: gpu.EventLost, // GPU has fallen off the bus
}

// Watch calls on for every hardware event until ctx ends, one at a time, and
// then returns nil. It watches the GPUs that Snapshot last found and follows
// when Snapshot finds others, so it waits while there are none. NVML tells XIDs
// only: the event of an XID with a kind of its own carries that kind and the
// number. Watch also calls on with [gpu.EventAnswer]; one Watch at a time gets
// each of these.
//
// Each GPU has an event set and a goroutine of its own, so a GPU that hangs in any
// call for events delays no event of another, and nothing frees a set below a
// call that hangs in it. The events of a GPU before it is watched are lost, and a
// GPU that offers no events is logged and not watched: scan from time to time.
//
// Watch fails if NVML lets it watch no GPU, although one offers events, and with
// [gpu.ErrTimeout] if NVML does not return after ctx has ended.
func (l *Library) Watch(ctx context.Context, on func(gpu.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watch{
		library:  l,
		events:   make(chan gpu.Event),
		states:   make(chan watcherState),
		quit:     make(chan struct{}),
		watchers: map[string]*watcher{},
	}
	defer close(w.quit)
	for {
		changed := w.follow(ctx)
		select {
		case e := <-w.events:
			on(e)
		case <-l.news:
			on(gpu.Event{Kind: gpu.EventAnswer})
		case <-changed:
		case s := <-w.states:
			w.note(s)
			if err := w.failed(); err != nil {
				cancel()
				return errors.Join(err, w.stop())
			}
		case <-ctx.Done():
			return w.stop()
		}
	}
}

// watch is a Watch that runs.
type watch struct {
	library *Library
	events  chan gpu.Event
	states  chan watcherState
	quit    chan struct{} // closed when nobody receives any more
	// watchers that have not ended, by the UUID of their GPU.
	watchers map[string]*watcher
}

// watcherState is news of a watcher: that it watches, why it does not, or that it
// has ended.
type watcherState struct {
	watcher *watcher
	err     error
	ended   bool
}

// follow watches the GPUs that there are, and no others. It returns a channel
// that is closed when there are others.
func (w *watch) follow(ctx context.Context) <-chan struct{} {
	lib, gpus, changed := w.library.watched()
	for uuid, r := range w.watchers {
		if index, there := gpus[uuid]; !there || index != r.index {
			r.cancel()
		}
	}
	for uuid, index := range gpus {
		if w.watchers[uuid] == nil && ctx.Err() == nil {
			w.start(ctx, &watcher{watch: w, lib: lib, uuid: uuid, index: index, slot: w.library.slot(index)})
		}
	}
	return changed
}

func (w *watch) start(ctx context.Context, r *watcher) {
	ctx, r.cancel = context.WithCancel(ctx)
	w.watchers[r.uuid] = r
	w.library.holdWatch(1)
	go func() {
		r.run(ctx)
		r.cancel()
		w.library.holdWatch(-1)
		r.report(watcherState{ended: true})
	}()
}

// note takes in the state of a watcher.
func (w *watch) note(s watcherState) {
	if s.ended {
		delete(w.watchers, s.watcher.uuid)
	}
	s.watcher.err = s.err
}

// failed returns why no GPU is watched; nil if one is, or is about to be, or if
// none offers events.
func (w *watch) failed() error {
	var errs []error
	for _, uuid := range slices.Sorted(maps.Keys(w.watchers)) {
		switch err := w.watchers[uuid].err; {
		case err == nil:
			return nil
		case !errors.Is(err, gpu.ErrNotSupported):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stop waits for the watchers to end, whose context has ended.
func (w *watch) stop() error {
	patience := time.NewTimer(3 * eventWait)
	defer patience.Stop()
	for len(w.watchers) > 0 {
		select {
		case s := <-w.states:
			w.note(s)
		case <-patience.C:
			return fmt.Errorf("watch GPU events: %w: NVML has not returned on %s", gpu.ErrTimeout, slices.Sorted(maps.Keys(w.watchers)))
		}
	}
	return nil
}

// watched returns the GPUs to watch by their UUID, and a channel that is closed
// when they change.
func (l *Library) watched() (nvml.Interface, map[string]int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lib, l.gpus, l.changed
}

func (l *Library) holdWatch(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches += n
}
