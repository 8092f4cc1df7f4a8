// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"pgregory.net/rapid"
)

// newTestSim makes a node of a built-in model, with the library initialised.
// It has one CPU per NUMA node, which spares the disk most of the tree.
func newTestSim(t testing.TB, model string) (*Sim, nvml.Interface) {
	t.Helper()
	m, err := LoadModel(model)
	noError(t, err)
	for i := range m.NUMANodes {
		m.NUMANodes[i].CPUs, _, _ = strings.Cut(m.NUMANodes[i].CPUs, "-")
	}
	return newFullSim(t, m)
}

// newFullSim makes a node of an unchanged model.
func newFullSim(t testing.TB, m *Model) (*Sim, nvml.Interface) {
	t.Helper()
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	return s, initialised(t, s)
}

func initialised(t testing.TB, s *Sim) nvml.Interface {
	t.Helper()
	lib := s.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatalf("Init: %v", ret)
	}
	t.Cleanup(func() { succeed(t, lib.Shutdown()) })
	return lib
}

// another opens the same node as another process would.
func another(t testing.TB, s *Sim) (*Sim, nvml.Interface) {
	t.Helper()
	other, err := Open(s.root)
	noError(t, err)
	return other, initialised(t, other)
}

// gpuHandle returns the handle of a GPU by its index.
func gpuHandle(t testing.TB, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, ret := lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		t.Fatalf("DeviceGetHandleByIndex(%d): %v", index, ret)
	}
	return d
}

// must fails the test unless the call succeeded.
func must[T any](t testing.TB, what string) func(T, nvml.Return) T {
	return func(value T, ret nvml.Return) T {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatalf("%s: %v", what, ret)
		}
		return value
	}
}

// succeed fails the test unless a call without a result succeeded.
func succeed(t testing.TB, ret nvml.Return) {
	t.Helper()
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
}

// noError ends the test unless err is nil.
func noError(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
