// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// slowGPU takes its time to answer. Its answers are numbered.
type slowGPU struct {
	takes atomic.Int64 // a time.Duration
	asked atomic.Int32
}

func newSlowGPU(takes time.Duration) *slowGPU {
	g := &slowGPU{}
	g.takes.Store(int64(takes))
	return g
}

func (g *slowGPU) read(func(gpu.PCIAddress)) (gpu.GPU, error) {
	number := g.asked.Add(1)
	pass(time.Duration(g.takes.Load()))
	return gpu.GPU{UUID: "GPU-1", Index: int(number)}, nil
}

// pass lets time pass in a test with a fake clock.
func pass(d time.Duration) { <-time.After(d) }

func TestALateAnswerIsReturnedOnceByTheNextReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		s, g := newSlot(func() { notified.Add(1) }), newSlowGPU(15*time.Second)
		if r := s.readGPU(t.Context(), "read", g.read); !errors.Is(r.err, gpu.ErrTimeout) {
			t.Fatalf("first: %v, want %v", r.err, gpu.ErrTimeout)
		}
		before := time.Now()
		require.Error(t, "while it is still asked", s.readGPU(t.Context(), "read", g.read).err, gpu.ErrTimeout)
		if waited := time.Since(before); waited != 0 {
			t.Errorf("waited %v for a GPU that is known to be late", waited)
		}
		notified.Store(0)
		pass(14 * time.Second)
		synctest.Wait()
		if n := notified.Load(); n != 1 {
			t.Errorf("notified of the answer %d times, want once", n)
		}
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 1 {
			t.Errorf("got answer %d, %v, want the first", r.gpu.Index, r.err)
		}
		g.takes.Store(0)
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 2 {
			t.Errorf("got answer %d, %v, want a new one", r.gpu.Index, r.err)
		}
	})
}

func TestALateAnswerIsNotKeptForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlot(func() {}), newSlowGPU(3*time.Second)
		s.readGPU(t.Context(), "read", g.read)
		pass(time.Minute)
		g.takes.Store(0)
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 2 {
			t.Errorf("got answer %d, %v, want a new one", r.gpu.Index, r.err)
		}
	})
}

// A driver that always takes three seconds must not make the GPU come and go.
func TestAGPUThatIsAlwaysSlowStaysReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		s, g := newSlot(func() { notified.Add(1) }), newSlowGPU(3*time.Second)
		s.readGPU(t.Context(), "read", g.read)
		pass(2 * time.Second)
		for round := range 3 {
			if r := s.readGPU(t.Context(), "read", g.read); r.err != nil {
				t.Errorf("round %d: %v", round, r.err)
			}
			pass(time.Minute)
		}
		// Until it hangs.
		g.takes.Store(int64(time.Hour))
		s.readGPU(t.Context(), "read", g.read)
		notified.Store(0)
		pass(10 * time.Second)
		if notified.Load() == 0 {
			t.Error("no notification that it hangs")
		}
		require.Error(t, "while it hangs", s.readGPU(t.Context(), "read", g.read).err, gpu.ErrTimeout)
		pass(time.Hour)
	})
}

func TestSnapshotOfABusyGPUReturnsTheLastReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		s, g := newSlot(func() { notified.Add(1) }), newSlowGPU(0)
		s.readGPU(t.Context(), "read", g.read)
		h := newHanging()
		go func() { _, _ = do(t.Context(), s.guard, "create a partition", h.call) }()
		synctest.Wait()
		for range 2 {
			if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 1 {
				t.Errorf("got answer %d, %v, want the one before", r.gpu.Index, r.err)
			}
		}
		close(h.release)
		synctest.Wait()
		if n := notified.Load(); n != 1 {
			t.Errorf("notified of the answer %d times, want once", n)
		}
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 2 {
			t.Errorf("got answer %d, %v, want the one after", r.gpu.Index, r.err)
		}
	})
}

// The next scan would see the GPU as it was in the middle of an operation.
func TestAnAnswerThatACallerHasIsNotLateForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlot(func() {}), newSlowGPU(0)
		s.readGPU(t.Context(), "read", g.read)
		h := newHanging()
		go func() { _, _ = do(t.Context(), s.guard, "create a partition", h.call) }()
		synctest.Wait()
		s.readGPU(t.Context(), "read", g.read)
		time.AfterFunc(time.Second, func() { close(h.release) })
		for want := 2; want <= 3; want++ {
			if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != want {
				t.Errorf("got answer %d, %v, want %d", r.gpu.Index, r.err, want)
			}
		}
	})
}

func TestAGPUThatHangsInAnOperationIsReadWhenItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		s, g := newSlot(func() { notified.Add(1) }), newSlowGPU(0)
		s.readGPU(t.Context(), "read", g.read)
		h := newHanging()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = do(ctx, s.guard, "create a partition", h.call)
		synctest.Wait()
		if n := notified.Load(); n != 1 {
			t.Errorf("notified %d times that it hangs, want once", n)
		}
		require.Error(t, "while it hangs", s.readGPU(t.Context(), "read", g.read).err, gpu.ErrTimeout)
		close(h.release)
		synctest.Wait()
		if n := notified.Load(); n != 2 {
			t.Errorf("notified %d times, want once that it hangs and once that it answers", n)
		}
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 2 {
			t.Errorf("got answer %d, %v, want the one after", r.gpu.Index, r.err)
		}
	})
}

func TestAnAnswerFromBeforeALibraryRestartIsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlot(func() {}), newSlowGPU(3*time.Second)
		s.readGPU(t.Context(), "read", g.read)
		s.forget()
		pass(2 * time.Second)
		synctest.Wait()
		g.takes.Store(0)
		if r := s.readGPU(t.Context(), "read", g.read); r.err != nil || r.gpu.Index != 2 {
			t.Errorf("got answer %d, %v, want a new one", r.gpu.Index, r.err)
		}
	})
}
