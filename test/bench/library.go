// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// callsPerSample is the number of calls that are timed together. One call is shorter than
// the clock's unit of the report.
const callsPerSample = 100

// measureLibrary measures what the simulated libnvidia-ml.so.1 adds to the simulator, which
// this process has linked. Both read the same node in turn.
func (b *bench) measureLibrary(ctx context.Context, f *figures) error {
	path, err := nvml.FindLibrary(b.root)
	if err != nil {
		return err
	}
	sim, err := nvmlsim.Open(b.root)
	if err != nil {
		return err
	}
	loaded, linked := gonvml.New(gonvml.WithLibraryPath(path)), sim.NVML()
	for _, lib := range []gonvml.Interface{loaded, linked} {
		if ret := lib.Init(); ret != gonvml.SUCCESS {
			return fmt.Errorf("start the simulator's NVML: %w", ret)
		}
	}
	snapshots := []*nvml.Library{nvml.New(loaded), nvml.New(linked)}
	progress("reading the node through the simulated libnvidia-ml.so.1 and through the linked simulator, %d times", b.rounds)
	for range b.rounds {
		for _, m := range []struct {
			lib            gonvml.Interface
			node           *nvml.Library
			call, snapshot *[]float64
		}{
			{loaded, snapshots[0], &f.LibraryCall, &f.LibrarySnapshot},
			{linked, snapshots[1], &f.LinkedCall, &f.LinkedSnapshot},
		} {
			calls, err := took(func() error { return readMemory(m.lib) })
			if err != nil {
				return err
			}
			snapshot, err := took(func() error {
				_, err := m.node.Snapshot(ctx)
				return err
			})
			if err != nil {
				return err
			}
			*m.call, *m.snapshot = append(*m.call, calls), append(*m.snapshot, snapshot)
		}
	}
	return nil
}

// readMemory reads the memory of the first GPU callsPerSample times.
func readMemory(lib gonvml.Interface) error {
	device, ret := lib.DeviceGetHandleByIndex(0)
	if ret != gonvml.SUCCESS {
		return fmt.Errorf("the first GPU: %w", ret)
	}
	for range callsPerSample {
		if _, ret := device.GetMemoryInfo(); ret != gonvml.SUCCESS {
			return fmt.Errorf("memory of the first GPU: %w", ret)
		}
	}
	return nil
}
