// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

const mebi = 1 << 20

// rtxPro6000 is the GPU of that machine.
var rtxPro6000 = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 12}, Multiprocessors: 188}

// step is the size of the allocations with which NVIDIA measured.
const step = 256 * mebi

// newMeasuredWorld is the machine on which NVIDIA measured: one RTX PRO 6000.
func newMeasuredWorld(t *testing.T) *world {
	t.Helper()
	m, err := nvmlsim.LoadModel("rtx-pro-6000")
	must(t, err)
	m.GPUs = m.GPUs[:1]
	w := newWorldOf(t, m, "0")
	w.options.Protocol, w.options.MultiUser = protocolNamed, true
	return w
}

// fill allocates until CUDA refuses, and returns how much of it in MiB.
func (c *mpsClient) fill() uint64 {
	c.w.t.Helper()
	var allocated uint64
	for {
		r := c.ask(Request{Op: opAlloc, Bytes: step})
		if r.Error != nil {
			if r.Error.Name != errOutOfMemory {
				c.w.t.Errorf("refused with %v, want %s", r.Error, errOutOfMemory)
			}
			return allocated / mebi
		}
		allocated += step
	}
}

// Source: NVIDIA Dynamo, "Per-GPU Compute and Memory Limits with MPS", Verified Behavior:
// an RTX PRO 6000 Blackwell with 188 multiprocessors, driver 615.71.09, Linux 7.0.
func TestLimitsAsMeasured(t *testing.T) {
	const whole = 97887 - 638 // MiB that processes can have of it
	for name, tc := range map[string]struct {
		folder, memory     string
		cgroup             uint64 // limit of the container's cgroup in MiB
		multiprocessors    int
		allocatable, total uint64 // MiB
	}{
		"the default namespace, server with 50 % and 10G":   {folder: "s", multiprocessors: 94, allocatable: 9728, total: whole},
		"a namespace with 25 % and 5G":                      {folder: "s/quarter", multiprocessors: 46, allocatable: 4864, total: whole},
		"a namespace with 75 % and 20G, above its server":   {folder: "s/large", multiprocessors: 140, allocatable: 19968, total: whole},
		"a tighter limit of the client":                     {folder: "s", memory: "0=2G", multiprocessors: 94, allocatable: 1536, total: whole},
		"a limit for a GPU that the client does not see":    {folder: "s", memory: "0=2G,1=4G", multiprocessors: 94, allocatable: 96768, total: whole},
		"50 % and 3,000 MiB on the cgroup of the container": {folder: "s/half", cgroup: 3000, multiprocessors: 94, allocatable: 2560, total: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMeasuredWorld(t).start()
			w.calls("server create s --uid=0", "server set s --active-thread-percentage=50 --pinned-memory-limit=10G",
				"namespace create quarter --server=s", "namespace set quarter --server=s --active-thread-percentage=25 --pinned-memory-limit=5G",
				"namespace create large --server=s", "namespace set large --server=s --active-thread-percentage=75 --pinned-memory-limit=20G",
				"namespace create half --server=s", "namespace set half --server=s --active-thread-percentage=50")
			container := cgrouptest.New(t)
			if tc.cgroup > 0 {
				w.limitCgroup(container, tc.cgroup*mebi)
			}
			c := w.connectThrough(tc.folder, in(t, container), "", tc.memory)
			granted := c.attach(c.read())
			if got := granted.Devices[0].Multiprocessors; got != tc.multiprocessors {
				t.Errorf("it sees %d multiprocessors, want %d", got, tc.multiprocessors)
			}
			if r := c.ask(Request{Op: opInfo}); r.Memory == nil || r.Memory.TotalBytes != tc.total*mebi {
				t.Errorf("it sees a memory of %+v, want %d MiB", r.Memory, tc.total)
			}
			if got := c.fill(); got != tc.allocatable {
				t.Errorf("%d MiB are allocatable, want %d", got, tc.allocatable)
			}
		})
	}
}

func TestAMemoryLimitOfMPSIsReportedAsFreeMemory(t *testing.T) {
	w := newMeasuredWorld(t).start()
	w.calls("server create s --uid=0", "server set s --pinned-memory-limit=10G")
	c := w.connectThrough("s", in(t, cgrouptest.New(t)), "", "")
	c.attach(c.read())
	r := c.ask(Request{Op: opInfo})
	if r.Memory == nil {
		t.Fatal(r.Error)
	}
	if want := 10240*mebi - rtxPro6000.ContextBytes(188); r.Memory.FreeBytes != want {
		t.Errorf("%d MiB are free, want %d", r.Memory.FreeBytes/mebi, want/mebi)
	}
	before := r.Memory.FreeBytes
	c.ask(Request{Op: opAlloc, Bytes: 1 << 30})
	if r := c.ask(Request{Op: opInfo}); r.Memory.FreeBytes != before-1<<30 {
		t.Errorf("after an allocation of 1 GiB %d MiB are free, and %d before", r.Memory.FreeBytes/mebi, before/mebi)
	}
}

// A driver that counts the memory of clients in the cgroup of their server: the limit of
// the container's cgroup then holds nothing, and the limit of the namespace does.
func TestADriverThatChargesTheServer(t *testing.T) {
	w := newMeasuredWorld(t).start()
	w.calls("server create s --uid=0", "namespace create limited --server=s", "namespace set limited --server=s --pinned-memory-limit=4000M",
		"namespace create free --server=s", "namespace create half --server=s", "namespace set half --server=s --active-thread-percentage=50")
	container := cgrouptest.New(t)
	w.limitCgroup(container, 4000*mebi)
	must(t, w.sim.ChargeMPSServers())
	for folder, want := range map[string]uint64{"s/limited": 3328, "s/free": 80000} {
		c := w.connectThrough(folder, in(t, container), "", "")
		c.attach(c.read())
		got := c.fill()
		if folder == "s/limited" && got != want || folder == "s/free" && got < want {
			t.Errorf("%s: %d MiB, want %d", folder, got, want)
		}
		c.leave()
		w.eventually("the client to have left", func() bool { return len(w.processes()) == 1 })
	}
	must(t, w.sim.ClearFaults())
	other := cgrouptest.New(t)
	w.limitCgroup(other, 4000*mebi)
	c := w.connectThrough("s/half", in(t, other), "", "")
	c.attach(c.read())
	if got := c.fill(); got != 3584 {
		t.Errorf("without the fault: %d MiB, want 3584", got)
	}
}
