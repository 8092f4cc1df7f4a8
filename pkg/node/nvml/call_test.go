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

// hanging is a call that blocks until it is released, and counts its runs.
type hanging struct {
	release chan struct{}
	calls   atomic.Int32
}

func newHanging() *hanging { return &hanging{release: make(chan struct{})} }

func (h *hanging) call() (int, error) {
	h.calls.Add(1)
	<-h.release
	return 7, nil
}

func answer() (int, error) { return 42, nil }

func TestACallThatHangs(t *testing.T) {
	t.Run("is given up at the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, g := newHanging(), newGuard(nil)
			defer close(h.release)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := do(ctx, g, "read GPU 3", h.call)
			if !errors.Is(err, gpu.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want %v", err, gpu.ErrTimeout)
			}
			if !g.busy() {
				t.Error("the driver counts as idle while it hangs")
			}
		})
	})
	t.Run("gets no second call on top of it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, g := newHanging(), newGuard(nil)
			defer close(h.release)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := do(ctx, g, "read GPU 3", h.call)
				require.Error(t, "do", err, gpu.ErrTimeout)
				cancel()
			}
			if n := h.calls.Load(); n != 1 {
				t.Errorf("%d calls into a driver that hangs, want 1", n)
			}
		})
	})
	t.Run("fails later calls at once, even without a deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, g := newHanging(), newGuard(nil)
			defer close(h.release)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = do(ctx, g, "read GPU 3", h.call)
			before := time.Now()
			_, err := do(t.Context(), g, "read GPU 3", answer)
			require.Error(t, "do", err, gpu.ErrTimeout)
			if waited := time.Since(before); waited != 0 {
				t.Errorf("waited %v", waited)
			}
		})
	})
	t.Run("is forgotten once it returns", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, g := newHanging(), newGuard(nil)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = do(ctx, g, "read GPU 3", h.call)
			close(h.release)
			synctest.Wait()
			if got, err := do(t.Context(), g, "read GPU 3", answer); got != 42 || err != nil {
				t.Errorf("got %d, %v, want 42", got, err)
			}
		})
	})
}

func TestACancelledCallerDoesNotMarkTheCallAsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, g := newHanging(), newGuard(nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := do(ctx, g, "read GPU 3", h.call)
		require.Error(t, "do", err, context.Canceled)
		// The next caller waits for its turn.
		time.AfterFunc(time.Second, func() { close(h.release) })
		if got, err := do(t.Context(), g, "read GPU 3", answer); got != 42 || err != nil {
			t.Errorf("got %d, %v, want 42", got, err)
		}
	})
}

func TestACancelledCallerDoesNotCall(t *testing.T) {
	h := newHanging()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := do(ctx, newGuard(nil), "read GPU 3", h.call)
	require.Error(t, "do", err, context.Canceled)
	if n := h.calls.Load(); n != 0 {
		t.Errorf("%d calls, want none", n)
	}
}

func TestACallExceedsItsLimitWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int32
		h, g := newHanging(), newGuard(func() { notified.Add(1) })
		defer close(h.release)
		// Another caller waits for its turn.
		second := make(chan error, 1)
		time.AfterFunc(time.Second, func() {
			_, err := do(t.Context(), g, "read GPU 3", answer)
			second <- err
		})
		_, err := do(t.Context(), g, "read GPU 3", h.call)
		require.Error(t, "do", err, gpu.ErrTimeout)
		require.Error(t, "the caller behind it", <-second, gpu.ErrTimeout)
		synctest.Wait()
		if n := notified.Load(); n != 1 {
			t.Errorf("notified %d times that it hangs, want once", n)
		}
	})
}
