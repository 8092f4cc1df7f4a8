// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// lateTime is how long the answer of a GPU that Snapshot did not wait for is kept
// for the next Snapshot.
const lateTime = 10 * time.Second

// slot is an NVML index: one GPU, for as long as the library is initialised.
type slot struct {
	guard *guard
	// tell is called when an ask would return something else than the last one.
	tell func()

	mu      sync.Mutex
	address *gpu.PCIAddress
	// last is the GPU as it last answered, nil if it failed to; took is how long
	// that was.
	last *gpu.GPU
	took time.Duration
	// queued waits for another call to return, then asks the GPU; asking does so
	// now. Both may be nil.
	queued, asking *inquiry
	// late is an answer that came at lateAt, when nobody waited for it any more;
	// nil if there is none.
	late   *reading
	lateAt time.Time
	// starts of the library so far; an answer belongs to one of them.
	starts int
}

// reading is what came of asking a GPU.
type reading struct {
	gpu     gpu.GPU
	address *gpu.PCIAddress
	err     error
}

// inquiry asks a GPU once, and goes on when nobody waits for it any more.
// Its fields are under slot.mu but for answer, which is there once done is
// closed.
type inquiry struct {
	abandoned bool
	done      chan struct{}
	answer    reading

	// Once it asks: the call, the start of the library that the answer belongs to,
	// when it began, and how long it may take.
	call   *running
	starts int
	began  time.Time
	limit  time.Duration
}

// readFunc reads a GPU, and calls found as soon as it knows the address.
type readFunc func(found func(gpu.PCIAddress)) (gpu.GPU, error)

func newSlot(tell func()) *slot { return &slot{guard: newGuard(tell), tell: tell} }

// ask reads the GPU, or takes the answer that came too late for an earlier ask.
// It waits for the GPU no longer than answerLimit.
func (s *slot) ask(ctx context.Context, operation string, read readFunc) reading {
	if r, ok := s.takeLate(); ok {
		return r
	}
	if ctx.Err() != nil {
		return s.unread(fmt.Errorf("%s: %w: %w", operation, gpu.ErrTimeout, context.Cause(ctx)))
	}
	if err := s.hanging(operation); err != nil {
		return s.unread(err)
	}
	q := s.inquire(operation, read)
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

// hanging returns an error if an earlier inquiry hangs: its answer will do.
func (s *slot) hanging(operation string) error {
	other := s.guard.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking == nil || other == nil || !other.isStuck() {
		return nil
	}
	s.asking.abandoned = true
	return other.error(operation)
}

// inquire asks the GPU as soon as no other call is under way. An inquiry that
// waits for that already serves as well.
func (s *slot) inquire(operation string, read readFunc) *inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued != nil {
		return s.queued
	}
	q := &inquiry{done: make(chan struct{})}
	s.queued = q
	go func() {
		mine := s.begin(q, operation)
		g, err := read(func(a gpu.PCIAddress) { s.found(q, a) })
		late := s.finish(q, g, err)
		s.guard.leave(mine)
		close(q.done)
		if late {
			s.tell()
		}
	}()
	return q
}

// begin waits for the inquiry's turn, however long that takes, and starts the
// call.
func (s *slot) begin(q *inquiry, operation string) *running {
	for {
		limit := s.limit()
		mine, other := s.guard.tryEnter(operation, limit, true)
		if mine == nil {
			<-other.returned
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queued, s.asking = nil, q
		q.call, q.starts, q.began, q.limit = mine, s.starts, time.Now(), limit
		return mine
	}
}

// limit returns how long a reading may take: longer than usual for a GPU that has
// answered, but slowly.
func (s *slot) limit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(answerLimit, 2*s.took), callLimit/2)
}

// found remembers the address of the GPU.
func (s *slot) found(q *inquiry, address gpu.PCIAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.starts == s.starts {
		s.address = &address
	}
}

// finish takes in the answer, and reports whether it comes too late.
func (s *slot) finish(q *inquiry, g gpu.GPU, err error) (late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = nil
	q.answer = reading{gpu: g, err: err, address: s.address}
	if q.starts != s.starts {
		return q.abandoned
	}
	s.last, s.took = nil, 0
	if err == nil {
		s.last, s.took = &g, time.Since(q.began)
	}
	if q.abandoned {
		s.late, s.lateAt = &q.answer, time.Now()
	}
	return q.abandoned
}

// abandon returns the answer to an inquiry. If there is none yet, it leaves the
// inquiry alone and returns what is known.
func (s *slot) abandon(ctx context.Context, q *inquiry, operation string) reading {
	r, hanging := s.known(ctx, q, operation)
	if hanging != nil {
		s.guard.giveUp(hanging)
	}
	return r
}

// known returns what is known instead of an answer, and the call that hangs if it
// is the inquiry's own.
func (s *slot) known(ctx context.Context, q *inquiry, operation string) (r reading, hanging *running) {
	other := s.guard.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q != s.queued && q != s.asking {
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
		// It is busy with an operation of the Library, or known to be slow.
		r.gpu = *s.last
	default:
		r.err = fmt.Errorf("%s: %w: no answer from the driver within %s", operation, gpu.ErrTimeout, answerLimit)
		hanging = q.call
	}
	return r, hanging
}

// takeLate returns the answer that came too late, once, unless it is old.
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

// unread is a reading that failed.
func (s *slot) unread(err error) reading { return reading{address: s.lastAddress(), err: err} }

// forget drops all that is known of the GPU: the index may name another one now.
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

// busy reports whether a call is under way or waits for its turn.
func (s *slot) busy() bool {
	s.mu.Lock()
	queued := s.queued != nil
	s.mu.Unlock()
	return queued || s.guard.busy()
}
