// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

const gib = 1 << 30

// limitingSim is a node whose driver has memory limits, by the backend.
func limitingSim(t *testing.T, backend string) (*Sim, nvml.Interface) {
	t.Helper()
	m, err := LoadModel("dgx-h100-r615")
	noError(t, err)
	m.MemoryLimits = backend
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	return s, initialised(t, s)
}

// computing is a process in the cgroup with some memory.
func computing(t *testing.T, folder string, bytes uint64) Process {
	t.Helper()
	pid := cgrouptest.Process(t, folder)
	ids, err := cgroup.Ancestry(pid)
	noError(t, err)
	return Process{PID: pid, MemoryBytes: bytes, Cgroups: ids}
}

func limit(t *testing.T, lib nvml.Interface, folder string, hard uint64) {
	t.Helper()
	succeed(t, gpuHandle(t, lib, 0).SetMemoryLimits_v1(folder, 0, hard))
}

func TestLimitsOfNestedCgroupsDependOnTheBackend(t *testing.T) {
	for backend, tc := range map[string]struct {
		// fits is how much the child can have with limits of 10 GiB on the parent and 20
		// GiB on itself, parentUsed what then counts in the parent.
		fits, parentUsed uint64
		refusedBy        string
	}{
		MemoryLimitsDmem: {fits: 10 * gib, parentUsed: 10 * gib, refusedBy: "10240 of 10240 MiB left"},
		MemoryLimitsMisc: {fits: 20 * gib, parentUsed: 0, refusedBy: "20480 of 20480 MiB left"},
	} {
		t.Run(backend, func(t *testing.T) {
			s, lib := limitingSim(t, backend)
			parent := cgrouptest.New(t)
			child := cgrouptest.Child(t, parent, "child")
			limit(t, lib, parent, 10*gib)
			limit(t, lib, child, 20*gib)
			p := computing(t, child, tc.fits+1<<20)
			err := s.AddProcess(0, p)
			if !errors.Is(err, simerr.ErrNoCapacity) || !strings.Contains(err.Error(), tc.refusedBy+" in the cgroup "+parent) {
				t.Errorf("%d MiB in the child: %v, want %v and %s", p.MemoryBytes>>20, err, simerr.ErrNoCapacity, tc.refusedBy)
			}
			p.MemoryBytes = tc.fits
			noError(t, s.AddProcess(0, p))
			limits := must[nvml.MemoryLimits_v1](t, "limits")(gpuHandle(t, lib, 0).GetMemoryLimits_v1(parent))
			if limits.CurrentUsed != tc.parentUsed {
				t.Errorf("the parent has used %d MiB, want %d MiB", limits.CurrentUsed>>20, tc.parentUsed>>20)
			}
		})
	}
}

func TestMemoryLimitsThatAreSwitchedOff(t *testing.T) {
	s, lib := limitingSim(t, MemoryLimitsOff)
	folder := cgrouptest.New(t)
	if err := s.library.LookupSymbol("nvmlDeviceSetMemoryLimits_v1"); err != nil {
		t.Errorf("the driver has no call: %v", err)
	}
	d := gpuHandle(t, lib, 0)
	if ret := d.SetMemoryLimits_v1(folder, 0, gib); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("set: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
	}
	if _, ret := d.GetMemoryLimits_v1(folder); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("get: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
	}
}

func TestALowerLimitTakesNothingAway(t *testing.T) {
	s, lib := limitingSim(t, MemoryLimitsDmem)
	end, err := s.RegisterMPSDaemon("a", nil)
	noError(t, err)
	defer end()
	uuid := s.node.gpus[0].uuid
	full, other := cgrouptest.New(t), cgrouptest.New(t)
	a, b := cgrouptest.Process(t, full), cgrouptest.Process(t, other)
	set := func(ofA, ofB uint64) error {
		return s.SetMPSServer(MPSServer{PID: os.Getpid(), Daemon: "a", Memory: map[string]uint64{uuid: 1 << 20}, Clients: []MPSClient{
			{PID: a, Memory: map[string]uint64{uuid: ofA}}, {PID: b, Memory: map[string]uint64{uuid: ofB}},
		}})
	}
	noError(t, set(8*gib, gib))
	limit(t, lib, full, 4*gib)
	for _, tc := range []struct {
		name   string
		a, b   uint64
		refuse bool
	}{
		{"another client allocates", 8 * gib, 2 * gib, false},
		{"the client above its limit allocates", 9 * gib, 2 * gib, true},
		{"the client above its limit frees some", 6 * gib, 2 * gib, false},
		{"it allocates what it has freed", 8 * gib, 2 * gib, true},
		{"both want more than the GPU has", 6 * gib, 78 * gib, true},
	} {
		if err := set(tc.a, tc.b); tc.refuse && !errors.Is(err, simerr.ErrNoCapacity) || !tc.refuse && err != nil {
			t.Errorf("%s: %v, refused should be %v", tc.name, err, tc.refuse)
		}
	}
}

// A driver that has limits must not be taken for one that has none.
func TestACgroupWithoutALimitIsNotSupported(t *testing.T) {
	for _, backend := range []string{MemoryLimitsDmem, MemoryLimitsMisc} {
		t.Run(backend, func(t *testing.T) {
			_, lib := limitingSim(t, backend)
			folder := cgrouptest.New(t)
			d := gpuHandle(t, lib, 0)
			if _, ret := d.GetMemoryLimits_v1(folder); ret != nvml.ERROR_NOT_SUPPORTED {
				t.Errorf("before the first limit: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
			}
			limit(t, lib, folder, gib)
			if got := must[nvml.MemoryLimits_v1](t, "limits")(d.GetMemoryLimits_v1(folder)); got.HardLimit != gib {
				t.Errorf("got %+v, want 1 GiB", got)
			}
		})
	}
}

func TestSoftLimitsAreReservedInTheCgroupsAbove(t *testing.T) {
	_, lib := limitingSim(t, MemoryLimitsDmem)
	parent := cgrouptest.New(t)
	first, second := cgrouptest.Child(t, parent, "first"), cgrouptest.Child(t, parent, "second")
	d := gpuHandle(t, lib, 0)
	reserved := func(want uint64) {
		t.Helper()
		got, ret := d.GetMemoryLimits_v1(parent)
		if want == 0 && ret == nvml.ERROR_NOT_SUPPORTED {
			return
		}
		if ret != nvml.SUCCESS || got.SoftLimit != want || got.HardLimit != nvml.DEVICE_MEMORY_LIMIT_MAX {
			t.Errorf("the parent has %+v, %v; want %d MiB reserved", got, ret, want>>20)
		}
	}
	succeed(t, d.SetMemoryLimits_v1(first, 0, 8*gib))
	reserved(0)
	succeed(t, d.SetMemoryLimits_v1(first, 4*gib, 8*gib))
	succeed(t, d.SetMemoryLimits_v1(second, 2*gib, 2*gib))
	reserved(6 * gib)
	succeed(t, d.SetMemoryLimits_v1(second, gib, 2*gib))
	reserved(5 * gib)
	// The driver does not see the end of a cgroup.
	noError(t, os.Remove(second))
	reserved(5 * gib)
	succeed(t, d.SetMemoryLimits_v1(first, 0, nvml.DEVICE_MEMORY_LIMIT_MAX))
	reserved(gib)
}
