// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// eventSet delivers the events of the GPUs that are registered with it. The events
// keep the order in which they happened.
type eventSet struct {
	mock.EventSet
	library *library
	// end closes closed, once.
	end    func()
	closed chan struct{}

	mu sync.Mutex
	// masks of event types by GPU, and the serial from which on events count.
	masks map[int]uint64
	since map[int]uint64
	// delivered is the serial of the last event that was.
	delivered uint64
}

var _ nvml.EventSet = (*eventSet)(nil)

func (l *library) EventSetCreate() (nvml.EventSet, nvml.Return) {
	if _, ret := l.enter("EventSetCreate"); ret != nvml.SUCCESS {
		return nil, ret
	}
	if err := l.bell.join(); err != nil {
		return nil, returnOf(err)
	}
	set := &eventSet{library: l, closed: make(chan struct{}), masks: map[int]uint64{}, since: map[int]uint64{}}
	set.end = sync.OnceFunc(func() {
		close(set.closed)
		l.bell.leave()
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses == 0 {
		set.end()
		return nil, nvml.ERROR_UNINITIALIZED
	}
	l.sets[set] = struct{}{}
	return set, nvml.SUCCESS
}

// supportedEvents are the types of event that the simulator reports of a GPU.
func supportedEvents(c call) uint64 {
	types := uint64(nvml.EventTypeXidCriticalError)
	if c.gpu.ECC != nil && *c.gpu.ECC {
		types |= nvml.EventTypeSingleBitEccError | nvml.EventTypeDoubleBitEccError
	}
	if c.spec.reportsRecovery() {
		types |= nvml.EventTypeGpuRecoveryAction
	}
	return types
}

func (d device) GetSupportedEventTypes() (uint64, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetSupportedEventTypes")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return supportedEvents(c), nvml.SUCCESS
}

// RegisterEvents records events from now on. All types must be supported.
func (d device) RegisterEvents(types uint64, set nvml.EventSet) nvml.Return {
	c, ret := d.enterGPU("DeviceRegisterEvents")
	if ret != nvml.SUCCESS {
		return ret
	}
	s, ok := set.(*eventSet)
	if !ok || s.library != d.library {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	if types&^supportedEvents(c) != 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	st, err := d.library.sim.load()
	if err != nil {
		return returnOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, registered := s.masks[d.index]; !registered {
		s.since[d.index] = st.Serial
	}
	s.masks[d.index] |= types
	return nvml.SUCCESS
}

// gets reports whether an event is delivered to the set. If the driver delivers the events
// of all GPUs to each set, it starts with the first registration.
func (s *eventSet) gets(st *State, e Event) bool {
	if !st.EventsToAllSets {
		return e.Serial > s.since[e.GPU] && e.Type&s.masks[e.GPU] != 0
	}
	for index, since := range s.since {
		if e.Serial > since && e.Type&s.masks[index] != 0 {
			return true
		}
	}
	return false
}

// next takes the oldest event that is not delivered yet.
func (s *eventSet) next(st *State) (nvml.EventData, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range st.Events {
		if e.Serial <= s.delivered || !s.gets(st, e) {
			continue
		}
		s.delivered = e.Serial
		data := nvml.EventData{
			Device:            s.library.device(e.GPU, ""),
			EventType:         e.Type,
			EventData:         e.Data,
			GpuInstanceId:     noInstance,
			ComputeInstanceId: noInstance,
		}
		if e.MIG != nil {
			data.GpuInstanceId, data.ComputeInstanceId = uint32(e.MIG.GPU), uint32(e.MIG.Compute)
		}
		return data, true
	}
	return nvml.EventData{}, false
}

// gpu returns the index of the GPU whose calls those of the set are: -1 unless
// one alone is registered.
func (s *eventSet) gpu() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.masks) != 1 {
		return -1
	}
	for index := range s.masks {
		return index
	}
	return -1
}

// Wait returns the next event, or ERROR_TIMEOUT after timeoutMillis milliseconds.
// It sleeps until another process changes the node, and ends with
// ERROR_UNINITIALIZED when the library is shut down meanwhile.
func (s *eventSet) Wait(timeoutMillis uint32) (nvml.EventData, nvml.Return) {
	timeout := time.NewTimer(time.Duration(timeoutMillis) * time.Millisecond)
	defer timeout.Stop()
	// One call, so call faults strike once.
	for method := "EventSetWait"; ; method = "" {
		changed := s.library.bell.next()
		st, ret := s.library.begin(method, s.gpu())
		if ret != nvml.SUCCESS {
			return nvml.EventData{}, ret
		}
		if data, ok := s.next(st); ok {
			return data, nvml.SUCCESS
		}
		select {
		case <-changed:
		case <-s.closed:
			return nvml.EventData{}, nvml.ERROR_UNINITIALIZED
		case <-timeout.C:
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
	}
}

func (s *eventSet) Free() nvml.Return {
	// A set is memory of this process: it goes whatever became of the driver.
	_, ret := s.library.enter("EventSetFree")
	s.end()
	s.library.mu.Lock()
	defer s.library.mu.Unlock()
	delete(s.library.sets, s)
	return ret
}
