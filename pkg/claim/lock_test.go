package claim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// process gives the locks that another process would have.
func process(t *testing.T, path string) *locks {
	t.Helper()
	l, err := newLocks(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocksExcludeGoroutinesAndProcesses(t *testing.T) {
	path := t.TempDir() + "/lock"
	processes := []*locks{process(t, path), process(t, path)}
	var all sync.WaitGroup
	var inside atomic.Int32
	for i := range 16 {
		all.Go(func() {
			for range 50 {
				unlock, err := processes[i%2].lock(t.Context(), "b", "a")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if n := len(processes[0].queues) + len(processes[1].queues); n != 0 {
		t.Errorf("%d queues left", n)
	}
}

func TestALockIsWaitedForAsLongAsTheContextLasts(t *testing.T) {
	path := t.TempDir() + "/lock"
	here, there := process(t, path), process(t, path)
	unlock, err := here.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*locks{"same process": here, "another process": there} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { _, err := l.lock(ctx, "b", "a"); result <- err }()
		cancel()
		if err := <-result; !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("%s: %v, want %v", name, err, gpu.ErrTimeout)
		}
		if _, ok, err := l.try(t.Context(), "a"); ok || err != nil {
			t.Errorf("%s: try gave %t, %v for a lock that is taken", name, ok, err)
		}
		// Giving up gives back what was taken on the way.
		unlockB, ok, err := l.try(t.Context(), "b")
		if !ok || err != nil {
			t.Fatalf("%s: try gave %t, %v for a lock that is free", name, ok, err)
		}
		unlockB()
	}
	unlock()
	unlock, err = there.lock(t.Context(), "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
