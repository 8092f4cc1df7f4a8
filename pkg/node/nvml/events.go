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
	// eventWait limits one wait for events, and so how long a Watch takes to end. It
	// is also the delay before the first retry after a watch has failed.
	eventWait = time.Second
	// rewatchTime is the delay before later retries.
	rewatchTime = 30 * time.Second
)

// eventKinds maps the NVML events that a Watch registers for, if the GPU supports
// them, to their kinds.
var eventKinds = map[uint64]gpu.EventKind{
	nvml.EventTypeXidCriticalError:      gpu.EventXID,
	nvml.EventTypeDoubleBitEccError:     gpu.EventECC,
	nvml.EventTypeDramRetirementFailure: gpu.EventECC,
	nvml.EventTypeFatalPoisonError:      gpu.EventECC,
	nvml.EventTypeNonFatalPoisonError:   gpu.EventECC,
	nvml.EventTypeGpuUnavailableError:   gpu.EventLost,
	nvml.EventTypeGpuRecoveryAction:     gpu.EventRecovery,
}

// xidKinds maps the XIDs that have a kind of their own; see NVIDIA's XID catalogue.
var xidKinds = map[uint64]gpu.EventKind{
	74: gpu.EventLink, // NVLink error
	79: gpu.EventLost, // GPU has fallen off the bus
}

// Watch calls on for each hardware event, one at a time, until ctx ends, and then returns
// nil. It watches the GPUs of the last Snapshot; if there are none, it waits for a
// Snapshot that finds some. If an XID has its own kind of event, the event has that kind
// and the number. Watch also calls on with [gpu.EventAnswer]; only one Watch receives each
// of these.
//
// Each GPU has its own event set and goroutine, so a GPU that hangs does not delay
// the events of another, and no set is freed during a call that uses it. NVML may deliver
// an event to the sets of other GPUs too: the event has the UUID of the GPU that it names,
// and none if that GPU is not known. So an event can arrive several times. Callers
// must also scan from time to time, because events before the GPU is watched are
// lost and a GPU that does not support events is only logged.
//
// Watch returns an error if some GPUs support events and none of them can be
// watched, and [gpu.ErrTimeout] if NVML does not return after ctx has ended.
func (l *Library) Watch(ctx context.Context, on func(gpu.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watch{
		library:  l,
		events:   make(chan gpu.Event),
		states:   make(chan watcherState),
		quit:     make(chan struct{}),
		handles:  &handles{uuids: map[nvml.Device]string{}},
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

// watch is a running Watch.
type watch struct {
	library *Library
	events  chan gpu.Event
	states  chan watcherState
	quit    chan struct{} // closed when the Watch stops receiving
	handles *handles
	// watchers holds the watchers that have not ended by the UUID of their GPU.
	watchers map[string]*watcher
}

// watcherState reports that a watcher watches (err is nil), cannot watch (err) or
// has ended.
type watcherState struct {
	watcher *watcher
	err     error
	ended   bool
}

// follow starts a watcher for each GPU of the last Snapshot and stops the others. It
// returns a channel that is closed when the GPUs change.
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

// note records the state of a watcher.
func (w *watch) note(s watcherState) {
	if s.ended {
		delete(w.watchers, s.watcher.uuid)
	}
	s.watcher.err = s.err
}

// failed returns why no GPU is watched. It returns nil if one is watched or is about
// to be, or if none supports events.
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

// stop waits for the watchers to end. Their context must have ended.
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
