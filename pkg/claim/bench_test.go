// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// realWorld returns a world that writes records through the real file system.
func realWorld(b *testing.B, gpus int) *world {
	w := newWorld(b, b.TempDir(), gpus)
	w.disk = store.Unsynced{}
	return w
}

func BenchmarkPrepareUnprepare(b *testing.B) {
	for _, others := range []int{0, 7, 55, 255} {
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

// median returns the median in milliseconds.
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

// hardware that takes no time, so that the benchmark measures only the manager.
type instantMIG struct {
	mu  sync.Mutex
	gpu map[gpu.PCIAddress]gpu.MIG
}

func (h *instantMIG) change(a gpu.PCIAddress, change func(*gpu.MIG)) gpu.MIG {
	h.mu.Lock()
	defer h.mu.Unlock()
	mig := h.gpu[a]
	change(&mig)
	h.gpu[a] = mig
	return mig
}

func (h *instantMIG) MIG(_ context.Context, a gpu.PCIAddress) (gpu.MIG, error) {
	return h.change(a, func(*gpu.MIG) {}), nil
}

func (h *instantMIG) MIGMode(_ context.Context, a gpu.PCIAddress) (on, pending bool, err error) {
	mig := h.change(a, func(*gpu.MIG) {})
	return mig.Enabled, mig.Enabled, nil
}

func (h *instantMIG) CancelPendingMIGMode(context.Context, gpu.PCIAddress) error { return nil }

func (h *instantMIG) SetMIGMode(_ context.Context, a gpu.PCIAddress, on bool) error {
	h.change(a, func(mig *gpu.MIG) { mig.Enabled = on })
	return nil
}

func (h *instantMIG) CreatePartition(_ context.Context, a gpu.PCIAddress, p gpu.Profile, start int) (gpu.Partition, error) {
	made := gpu.Partition{Profile: p, Placement: gpu.Placement{Start: start, Size: 1}, UUID: fmt.Sprintf("MIG-%s-%d", a, start), GPUInstanceID: start}
	h.change(a, func(mig *gpu.MIG) { mig.Partitions = append(slices.Clone(mig.Partitions), made) })
	return made, nil
}

func (h *instantMIG) DestroyPartition(_ context.Context, a gpu.PCIAddress, _ gpu.Profile, start int) error {
	h.change(a, func(mig *gpu.MIG) {
		mig.Partitions = slices.DeleteFunc(slices.Clone(mig.Partitions), func(p gpu.Partition) bool { return p.Placement.Start == start })
	})
	return nil
}

// cuttable returns a world of GPUs with seven placements for 1g.10gb.
func cuttable(b *testing.B, gpus int) *world {
	w := realWorld(b, gpus)
	hardware := &instantMIG{gpu: map[gpu.PCIAddress]gpu.MIG{}}
	info := gpu.ProfileInfo{Profile: gpu.Profile{Slices: 1, MemoryGB: 10}, MemoryBytes: 10 << 30}
	for start := range 7 {
		info.Placements = append(info.Placements, gpu.Placement{Start: start, Size: 1})
	}
	for a, g := range w.gpus {
		g.ComputeCapability.Major = 9
		g.MIG = gpu.MIG{Capable: true, Profiles: []gpu.ProfileInfo{info}}
		w.gpus[a], hardware.gpu[a] = g, g.MIG
	}
	w.partitioning = func(disk store.FS) *ports.Partitioning {
		modes, err := store.Open(filepath.Join(w.dir, "modes"), disk)
		if err != nil {
			b.Fatal(err)
		}
		kept, err := store.Open(filepath.Join(w.dir, "kept"), disk)
		if err != nil {
			b.Fatal(err)
		}
		nodes := func(gpu.GPU, int, int) ([]string, error) {
			return []string{"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}, nil
		}
		return &ports.Partitioning{MIG: hardware, CapabilityNodes: nodes, Openers: (*migWorld)(nil).openersOf, Modes: modes, Kept: kept}
	}
	return w
}

// sevenths returns one claim for each 1g.10gb placement of the GPUs.
func sevenths(gpus int) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for i := range gpus {
		for start := range 7 {
			claims = append(claims, newClaim(fmt.Sprintf("part-%d-%d", i, start), fmt.Sprintf("gpu-%02x-00-mig-1g-10gb-%d", i, start)))
		}
	}
	return claims
}

func BenchmarkPartition(b *testing.B) {
	for _, others := range []int{0, 6, 55} {
		b.Run(fmt.Sprintf("beside-%d", others), func(b *testing.B) {
			m, claims := cuttable(b, 8).start(), sevenths(8)
			for _, c := range claims[1 : others+1] {
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

func BenchmarkFiftySixPartitionsAtOnce(b *testing.B) {
	m, claims := cuttable(b, 8).start(), sevenths(8)
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

// shares returns n claims, each for a share of 1Gi of the same GPU.
func shares(n int) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for i := range n {
		claims = append(claims, pieces(fmt.Sprintf("share-%d", i), piece{device: "gpu-00-00", memory: "1Gi"}))
	}
	return claims
}

func BenchmarkShare(b *testing.B) {
	for _, others := range []int{0, 1, 47} {
		b.Run(fmt.Sprintf("beside-%d", others), func(b *testing.B) {
			w := newShareWorld(b, b.TempDir(), 1)
			w.disk = store.Unsynced{}
			m, claims := w.start(), shares(others+1)
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
