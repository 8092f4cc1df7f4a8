package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// eventWait bounds one wait for events, and with it how long a Watch takes to
// end, to see other GPUs and to try again after a GPU was lost.
const eventWait = time.Second

// eventKinds are the NVML events that are asked for, as far as a GPU supports
// them.
var eventKinds = map[uint64]gpu.EventKind{
	nvml.EventTypeXidCriticalError:      gpu.EventXID,
	nvml.EventTypeDoubleBitEccError:     gpu.EventECC,
	nvml.EventTypeDramRetirementFailure: gpu.EventECC,
	nvml.EventTypeFatalPoisonError:      gpu.EventECC,
	nvml.EventTypeNonFatalPoisonError:   gpu.EventECC,
	nvml.EventTypeGpuUnavailableError:   gpu.EventLost,
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
// number.
//
// An event may be lost while the GPUs under watch change, and a GPU that offers
// no events is logged and not watched: look again from time to time.
//
// Watch fails where NVML refuses to wait, and with [gpu.ErrTimeout] where it
// does not return after ctx has ended.
func (l *Library) Watch(ctx context.Context, on func(gpu.Event)) error {
	events := make(chan gpu.Event)
	done := make(chan error, 1)
	go func() { done <- l.forward(ctx, events) }()
	for {
		select {
		case e := <-events:
			on(e)
		case <-l.news:
			on(gpu.Event{Kind: gpu.EventAnswer})
		case err := <-done:
			return err
		case <-ctx.Done():
			select {
			case err := <-done:
				return err
			case <-time.After(3 * eventWait):
				return fmt.Errorf("watch GPU events: %w: NVML has not returned from waiting", gpu.ErrTimeout)
			}
		}
	}
}

// forward sends the events of the GPUs that there are, for one set of GPUs
// after the other.
func (l *Library) forward(ctx context.Context, events chan<- gpu.Event) error {
	for ctx.Err() == nil {
		lib, uuids, changed := l.watched()
		if len(uuids) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		w := watch{library: l, lib: lib, uuids: uuids, changed: changed, events: events, devices: map[nvml.Device]string{}}
		if err := w.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watched gives the GPUs to watch and a channel that is closed when they
// change.
func (l *Library) watched() (nvml.Interface, []string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lib, slices.Sorted(maps.Keys(l.gpus)), l.changed
}

func (l *Library) holdWatch(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches += n
}

// watch is one event set: a fixed group of GPUs.
type watch struct {
	library *Library
	lib     nvml.Interface
	uuids   []string
	changed <-chan struct{}
	events  chan<- gpu.Event
	// devices that are registered: a GPU that is lost may not tell its UUID
	// any more. NVML gives one handle for each GPU.
	devices map[nvml.Device]string
}

// run returns nil when the GPUs change, one is lost, or ctx ends.
func (w *watch) run(ctx context.Context) (err error) {
	w.library.holdWatch(1)
	defer w.library.holdWatch(-1)
	set, ret := w.lib.EventSetCreate()
	if err := check("create an NVML event set", ret); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, check("free an NVML event set", set.Free()))
	}()
	for _, uuid := range w.uuids {
		err := w.register(set, uuid)
		switch {
		case errors.Is(err, gpu.ErrLost):
			w.send(ctx, gpu.Event{Kind: gpu.EventLost, UUID: uuid})
		case err != nil:
			klog.FromContext(ctx).Info("GPU is not watched for events", "device", uuid, "err", err)
		}
	}
	for {
		data, ret := set.Wait(uint32(eventWait.Milliseconds()))
		switch ret {
		case nvml.SUCCESS:
			if e, ok := w.event(data); ok {
				w.send(ctx, e)
			}
		case nvml.ERROR_TIMEOUT:
		case nvml.ERROR_GPU_IS_LOST:
			// NVML does not say which, and may say so again at once.
			w.send(ctx, gpu.Event{Kind: gpu.EventLost})
			select {
			case <-time.After(eventWait):
			case <-w.changed:
			case <-ctx.Done():
			}
			return nil
		default:
			return check("wait for GPU events", ret)
		}
		select {
		case <-w.changed:
			return nil
		case <-ctx.Done():
			return nil
		default:
		}
	}
}

func (w *watch) register(set nvml.EventSet, uuid string) error {
	device, ret := w.lib.DeviceGetHandleByUUID(uuid)
	if err := check("get its handle", ret); err != nil {
		return err
	}
	supported, ret := device.GetSupportedEventTypes()
	if err := check("read the events it supports", ret); err != nil {
		return err
	}
	var wanted uint64
	for kind := range eventKinds {
		wanted |= kind & supported
	}
	if wanted == 0 {
		return fmt.Errorf("register for its events: %w", gpu.ErrNotSupported)
	}
	w.devices[device] = uuid
	return check("register for its events", device.RegisterEvents(wanted, set))
}

func (w *watch) send(ctx context.Context, e gpu.Event) {
	select {
	case w.events <- e:
	case <-ctx.Done():
	}
}

// event translates what NVML reports; ok is false for what was not asked for.
func (w *watch) event(data nvml.EventData) (e gpu.Event, ok bool) {
	e.Kind, ok = eventKinds[data.EventType]
	if !ok {
		return gpu.Event{}, false
	}
	e.UUID = w.devices[data.Device]
	if e.Kind == gpu.EventXID {
		e.XID = data.EventData
		if kind, special := xidKinds[e.XID]; special {
			e.Kind = kind
		}
	}
	return e, true
}
