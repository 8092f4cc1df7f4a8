package claim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// realWorld has a disk that is waited for.
func realWorld(b *testing.B, gpus int) *world {
	w := newWorld(b, b.TempDir(), gpus)
	w.disk = store.Disk{}
	return w
}

func BenchmarkPrepareUnprepare(b *testing.B) {
	for _, others := range []int{0, 7, 55} {
		b.Run(fmt.Sprintf("beside-%d", others), func(b *testing.B) {
			w := realWorld(b, others+1)
			m := w.start()
			claims := oneEach(others + 1)
			for _, c := range claims[1:] {
				if _, err := m.Prepare(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			var prepare, unprepare []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := m.Prepare(b.Context(), claims[0]); err != nil {
					b.Fatal(err)
				}
				prepared := time.Now()
				if err := m.Unprepare(b.Context(), claims[0].UID); err != nil {
					b.Fatal(err)
				}
				prepare, unprepare = append(prepare, prepared.Sub(start)), append(unprepare, time.Since(prepared))
			}
			b.ReportMetric(median(prepare), "prepare-ms")
			b.ReportMetric(median(unprepare), "unprepare-ms")
		})
	}
}

// median in milliseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2]) / float64(time.Millisecond)
}

func BenchmarkUnprepareUnknown(b *testing.B) {
	m := realWorld(b, 1).start()
	for b.Loop() {
		if err := m.Unprepare(b.Context(), "unknown"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepareAgain(b *testing.B) {
	m, c := realWorld(b, 1).start(), newClaim("one", "gpu-00-00")
	for b.Loop() {
		if _, err := m.Prepare(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEightAtOnce(b *testing.B) {
	m, claims := realWorld(b, 8).start(), oneEach(8)
	for b.Loop() {
		var all sync.WaitGroup
		for _, c := range claims {
			all.Go(func() {
				if _, err := m.Prepare(b.Context(), c); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		b.StopTimer()
		for _, c := range claims {
			if err := m.Unprepare(b.Context(), c.UID); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
}
