// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// footprint counts the resources of an idle process, and the files of its node. heap is in bytes.
type footprint struct {
	goroutines, descriptors, files int
	heap                           uint64
}

// footprint waits until the node is idle, drops the notes of the test, and returns the footprint.
func (s *life) footprint(t *testing.T) footprint {
	t.Helper()
	s.pass(repairTime)
	s.story = nil
	s.n.client.(*fake.Clientset).ClearActions() //nolint:forcetypeassert // newLife makes it
	for range 2 {                               // the first frees what finalizers hold
		runtime.GC()
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	left := len(files.List(t, s.n.driverDir())) + len(files.List(t, s.n.CDIDir)) + len(files.List(t, string(s.n.kernel)))
	return footprint{runtime.NumGoroutine(), len(descriptors), left, memory.HeapAlloc}
}

// An agent that has had many claims has no more goroutines, files and memory than after a few.
func TestClaimsLeaveNothingInTheAgent(t *testing.T) {
	const few = 300
	all := fromEnvironment("CLAIMS", 600)
	synctest.Test(t, func(t *testing.T) {
		s := newLife(t, "1-h200", chartClasses(t), map[string]int{})
		defer s.end()
		live := func(claims int) footprint {
			for i := range claims {
				for _, do := range []func(int, int) error{s.create, s.prepare, s.finish} {
					if err := do(0, i); err != nil {
						t.Fatal(err)
					}
				}
				if i%1000 == 0 {
					s.footprint(t)
				}
			}
			return s.footprint(t)
		}
		first, last := live(few), live(all)
		if s.created < all/2 || len(s.claims) > 0 {
			t.Fatalf("%d claims, and %d are left", s.created, len(s.claims))
		}
		t.Logf("after %d claims: %+v; after %d more: %+v", few, first, all, last)
		grown := int64(last.heap) - int64(first.heap)
		last.heap = first.heap
		// Caches with a limit fill at first: the more claims, the smaller the leak that is seen.
		if last != first || grown > 120<<10+16*int64(all) {
			t.Errorf("the agent has grown, its memory by %d bytes", grown)
		}
	})
}
