// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// lateTime is how long a late answer is kept for the next Snapshot.
const lateTime = 10 * time.Second

// slot reads the GPU at an NVML index. An index names the same GPU as long as the
// library is initialised.
type slot struct {
	guard *guard
	// notify is called when a new reading would differ from the last one.
	notify func()

	mu      sync.Mutex
	address *gpu.PCIAddress
	// last is the last reading, or nil if it failed; took is its duration.
	last *gpu.GPU
	took time.Duration
	// queued waits for another call to return before it reads the GPU; active
	// reads it now. Both may be nil.
	queued, active *query
	// late is an answer that came at lateAt, after its caller had stopped waiting,
	// or nil.
	late   *reading
	lateAt time.Time
	// doubted is set if an operation found the GPU lost since it was last read.
	doubted bool
	// starts counts the starts of the library. An answer is valid for one of them.
	starts int
}

// reading is the result of reading a GPU.
type reading struct {
	gpu     gpu.GPU
	address *gpu.PCIAddress
	err     error
}

// query reads a GPU once. It continues after its caller has stopped waiting.
// slot.mu guards its fields except answer, which is valid once done is closed.
type query struct {
	abandoned bool
	done      chan struct{}
	answer    reading

	// The fields below are set when the reading begins.
	call   *running
	starts int
	began  time.Time
	limit  time.Duration
}

// readFunc reads a GPU, and calls found as soon as it knows the address.
type readFunc func(found func(gpu.PCIAddress)) (gpu.GPU, error)

func newSlot(notify func()) *slot { return &slot{guard: newGuard(notify), notify: notify} }

// readGPU reads the GPU, or returns the late answer to an earlier call. It waits for
// the GPU at most answerLimit.
func (s *slot) readGPU(ctx context.Context, operation string, read readFunc) reading {
	if r, ok := s.takeLate(); ok {
		return r
	}
	if ctx.Err() != nil {
		return s.unread(fmt.Errorf("%s: %w: %w", operation, gpu.ErrTimeout, context.Cause(ctx)))
	}
	if err := s.hanging(operation); err != nil {
		return s.unread(err)
	}
	q := s.startQuery(operation, read)
	if other := s.guard.current(); other == nil || !other.isStuck() {
		patience := time.NewTimer(answerLimit)
		defer patience.Stop()
		select {
		case <-q.done:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	return s.abandon(ctx, q, operation)
}

// hanging returns an error if an earlier query hangs. That query's answer
// serves this caller too, so no second one is started.
func (s *slot) hanging(operation string) error {
	other := s.guard.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil || other == nil || !other.isStuck() {
		return nil
	}
	s.active.abandoned = true
	return other.error(operation)
}

// startQuery starts a query when no other call is running, or returns the query
// that is already queued.
func (s *slot) startQuery(operation string, read readFunc) *query {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued != nil {
		return s.queued
	}
	q := &query{done: make(chan struct{})}
	s.queued = q
	go func() {
		mine := s.begin(q, operation)
		g, err := read(func(a gpu.PCIAddress) { s.found(q, a) })
		late := s.finish(q, g, err)
		s.guard.leave(mine)
		close(q.done)
		if late {
			s.notify()
		}
	}()
	return q
}

// begin waits, without a limit, until no other call is under way, and starts the
// call.
func (s *slot) begin(q *query, operation string) *running {
	for {
		limit := s.limit()
		mine, other := s.guard.tryEnter(operation, limit, true)
		if mine == nil {
			<-other.returned
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queued, s.active = nil, q
		q.call, q.starts, q.began, q.limit = mine, s.starts, time.Now(), limit
		return mine
	}
}

// limit returns how long a reading may take. It is longer than usual for a GPU that
// answered slowly the last time.
func (s *slot) limit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(answerLimit, 2*s.took), callLimit/2)
}

// found remembers the address of the GPU.
func (s *slot) found(q *query, address gpu.PCIAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.starts == s.starts {
		s.address = &address
	}
}

// finish stores the answer and reports whether it is late.
func (s *slot) finish(q *query, g gpu.GPU, err error) (late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	q.answer = reading{gpu: g, err: err, address: s.address}
	if q.starts != s.starts {
		return q.abandoned
	}
	s.last, s.took = nil, 0
	if err == nil {
		s.last, s.took, s.doubted = &g, time.Since(q.began), false
	}
	if q.abandoned {
		s.late, s.lateAt = &q.answer, time.Now()
	}
	return q.abandoned
}

// abandon returns the answer to a query. If there is none yet, the query
// continues, and abandon returns a substitute as known does.
func (s *slot) abandon(ctx context.Context, q *query, operation string) reading {
	r, hanging := s.known(ctx, q, operation)
	if hanging != nil {
		s.guard.giveUp(hanging)
	}
	return r
}

// known returns the answer, or the last reading or an error instead of it. hanging
// is the query's own call if that call hangs.
func (s *slot) known(ctx context.Context, q *query, operation string) (r reading, hanging *running) {
	other := s.guard.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q != s.queued && q != s.active {
		s.late = nil // an earlier caller's, and not later than this answer
		return q.answer, nil
	}
	q.abandoned = true
	r.address = s.address
	switch {
	case q == s.queued && other != nil && other.isStuck():
		r.err = other.error(operation)
	case ctx.Err() != nil:
		r.err = fmt.Errorf("%s: %w: no answer from the driver: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
	case s.last != nil && (q == s.queued || q.limit > answerLimit):
		// The GPU is busy with an operation of the Library, or known to be slow.
		r.gpu = *s.last
	default:
		r.err = fmt.Errorf("%s: %w: no answer from the driver within %s", operation, gpu.ErrTimeout, answerLimit)
		hanging = q.call
	}
	return r, hanging
}

// takeLate removes and returns the late answer. It returns false if there is none
// or it is older than lateTime.
func (s *slot) takeLate() (reading, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.late
	s.late = nil
	if late == nil || time.Since(s.lateAt) > lateTime {
		return reading{}, false
	}
	return *late, true
}

// doubt records that an operation found the GPU lost. It reports whether it is the first since
// the GPU was read.
func (s *slot) doubt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.doubted
	s.doubted = true
	return first
}

// unread returns a failed reading.
func (s *slot) unread(err error) reading { return reading{address: s.lastAddress(), err: err} }

// forget drops all facts about the GPU, because the index may name another one now.
func (s *slot) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address, s.last, s.late, s.took = nil, nil, nil, 0
	s.starts++
}

func (s *slot) lastAddress() *gpu.PCIAddress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// busy reports whether a call is under way or queued.
func (s *slot) busy() bool {
	s.mu.Lock()
	queued := s.queued != nil
	s.mu.Unlock()
	return queued || s.guard.busy()
}
