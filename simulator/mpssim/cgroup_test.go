// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// h100 is what the context of a client depends on.
var h100 = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}, Multiprocessors: 132}

// contextBytes is the context of a client with all multiprocessors of an H100.
var contextBytes = h100.ContextBytes(132)

// in is a process in a cgroup, of the daemon's user.
func in(t *testing.T, folder string) user {
	t.Helper()
	return user{pid: cgrouptest.Process(t, folder), uid: os.Getuid()}
}

// limitCgroup limits the memory of a cgroup on the first GPU.
func (w *world) limitCgroup(folder string, bytes uint64) {
	w.t.Helper()
	lib := w.sim.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
	if ret := d.SetMemoryLimits_v1(folder, 0, bytes); ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
}

func TestTheLimitOfACgroupIsOfAllClientsInIt(t *testing.T) {
	w := newWorld(t, "dgx-h100-r615", "0").start()
	container := cgrouptest.New(t)
	w.limitCgroup(container, 4<<30)
	first, granted := w.join(in(t, container), "", "")
	if granted.Devices[0].LimitBytes != 0 {
		t.Errorf("MPS limits it too: %+v", granted)
	}
	second, _ := w.join(in(t, container), "", "")
	other, _ := w.join(in(t, cgrouptest.New(t)), "", "")
	if r := first.ask(Request{Op: opAlloc, Bytes: 2 << 30}); r.Error != nil {
		t.Fatal(r.Error)
	}
	r := second.ask(Request{Op: opAlloc, Bytes: 2 << 30})
	if errorOf(r) != errOutOfMemory || !strings.Contains(r.Error.Message, "4096 MiB left in the cgroup "+container) {
		t.Errorf("more than the limit: %+v, %v", r, r.Error)
	}
	if r := second.ask(Request{Op: opAlloc, Bytes: 2<<30 - 2*contextBytes}); r.Error != nil {
		t.Error(r.Error)
	}
	if r := other.ask(Request{Op: opAlloc, Bytes: 20 << 30}); r.Error != nil {
		t.Error(r.Error)
	}
	refused := w.connect(in(t, container), "", "").read()
	if errorOf(refused) != errOutOfMemory || !strings.Contains(refused.Error.Message, "no context") {
		t.Errorf("a client for whose context nothing is left: %+v", refused)
	}
}
