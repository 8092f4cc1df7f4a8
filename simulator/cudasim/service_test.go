// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

const gib = 1 << 30

// contextBytes is the context of a process on an H100.
var contextBytes = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}}.ContextBytes(132)

// world is a node whose driver serves.
type world struct {
	t   *testing.T
	sim *nvmlsim.Sim
	// pids and roots of the processes in the order in which they connect.
	pids chan int
	// root is the root file system of all processes.
	root string
	stop func()
}

func newWorld(t *testing.T, change func(*nvmlsim.Model)) *world {
	t.Helper()
	m, err := nvmlsim.LoadModel("dgx-h100-r615")
	must(t, err)
	m.GPUs = m.GPUs[:2]
	if change != nil {
		change(m)
	}
	return newWorldOf(t, m)
}

func newWorldOf(t *testing.T, m *nvmlsim.Model) *world {
	t.Helper()
	// A path that is longer than a socket's address can be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	sim, err := nvmlsim.Create(dir, m)
	must(t, err)
	w := &world{t: t, sim: sim, pids: make(chan int, 1), root: sim.Root()}
	w.serve()
	return w
}

// serve runs the service until stop or the end of the test.
func (w *world) serve() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	o := Options{
		Log:      w.t.Output(),
		identify: func(*net.UnixConn) (int, error) { return <-w.pids, nil },
		root:     func(int) string { return w.root },
	}
	go func() { ended <- Run(ctx, w.sim, o, func() { close(ready) }) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(w.stop)
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		w.t.Fatal(err)
	}
}

// connection of a CUDA process.
type connection struct {
	t       *testing.T
	conn    net.Conn
	decoder *json.Decoder
}

func (w *world) connect(pid int) *connection {
	w.t.Helper()
	folder, err := os.Open(filepath.Dir(w.sim.DriverSocket()))
	must(w.t, err)
	defer folder.Close() //nolint:errcheck // a folder
	var dialer net.Dialer
	conn, err := dialer.DialContext(w.t.Context(), "unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(folder.Fd())), "socket"))
	must(w.t, err)
	w.pids <- pid
	w.t.Cleanup(func() { _ = conn.Close() })
	return &connection{t: w.t, conn: conn, decoder: json.NewDecoder(conn)}
}

func (c *connection) call(r Request) Reply {
	c.t.Helper()
	var reply Reply
	must(c.t, errors.Join(json.NewEncoder(c.conn).Encode(r), c.decoder.Decode(&reply)))
	return reply
}

// ended waits until the service has closed the connection.
func (c *connection) ended() {
	c.t.Helper()
	if err := c.decoder.Decode(&Reply{}); err == nil {
		c.t.Error("the connection goes on")
	}
}

// started is a connection of a process that has initialised CUDA.
func (w *world) started(pid int) *connection {
	w.t.Helper()
	c := w.connect(pid)
	if r := c.call(Request{Op: opInit}); r.Error != nil {
		w.t.Fatal(r.Error)
	}
	return c
}

// alloc returns the name of CUDA's error, and its message.
func (c *connection) alloc(bytes uint64) (name, message string) {
	c.t.Helper()
	if r := c.call(Request{Op: opAlloc, Bytes: bytes}); r.Error != nil {
		return r.Error.Name, r.Error.Message
	}
	return "", ""
}

func (c *connection) mustAlloc(bytes uint64) {
	c.t.Helper()
	if name, message := c.alloc(bytes); name != "" {
		c.t.Fatal(name, message)
	}
}

// sleeping is a process of this machine that computes nothing.
func sleeping(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "infinity")
	must(t, cmd.Start())
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// used returns the memory in use of the first GPU, by PID.
func (w *world) used() map[int]uint64 {
	w.t.Helper()
	st, err := w.sim.State()
	must(w.t, err)
	used := map[int]uint64{}
	for _, p := range st.GPUs[0].Processes {
		used[p.PID] += p.MemoryBytes
	}
	return used
}

func (w *world) limit(folder string, hard uint64) {
	w.t.Helper()
	lib := w.sim.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
	if ret := d.SetMemoryLimits_v1(folder, 0, hard); ret != nvml.SUCCESS {
		w.t.Fatal(ret)
	}
}

func TestAProcessHasMemoryUntilItsConnectionEnds(t *testing.T) {
	w := newWorld(t, nil)
	pid, _ := sleeping(t)
	c := w.started(pid)
	c.mustAlloc(2 * gib)
	if r := c.call(Request{Op: opFree, Bytes: gib}); r.Error != nil || *r.UsedBytes != gib {
		t.Errorf("free: %+v", r)
	}
	if got := w.used()[pid]; got != gib+contextBytes {
		t.Errorf("the process has %d MiB, want 1 GiB and a context", got>>20)
	}
	must(t, c.conn.Close())
	w.stop()
	if got := w.used(); len(got) > 0 {
		t.Errorf("after its end: %v", got)
	}
}

func TestAProcessEndsWithItsPID(t *testing.T) {
	w := newWorld(t, nil)
	pid, end := sleeping(t)
	c := w.started(pid)
	c.mustAlloc(gib)
	end()
	c.ended()
	w.stop()
	if got := w.used(); len(got) > 0 {
		t.Errorf("after its end: %v", got)
	}
}

func TestProcessesEndWithTheService(t *testing.T) {
	w := newWorld(t, nil)
	pid, _ := sleeping(t)
	c := w.started(pid)
	c.mustAlloc(gib)
	if err := Run(t.Context(), w.sim, Options{}, func() {}); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("a second service: %v, want %v", err, simerr.ErrInUse)
	}
	w.stop()
	c.ended()
	if got := w.used(); len(got) > 0 {
		t.Errorf("after the service's end: %v", got)
	}
	w.serve()
	w.started(pid).mustAlloc(gib)
}

func TestTheLimitOfACgroupIsOfAllItsProcesses(t *testing.T) {
	w := newWorld(t, nil)
	container := cgrouptest.New(t)
	w.limit(container, 4*gib)
	first, second := w.started(cgrouptest.Process(t, container)), w.started(cgrouptest.Process(t, container))
	other := w.started(cgrouptest.Process(t, cgrouptest.New(t)))
	first.mustAlloc(2 * gib)
	name, message := second.alloc(2 * gib)
	if name != errOutOfMemory || !strings.Contains(message, "4096 MiB left in the cgroup "+container) {
		t.Errorf("2 GiB more in the cgroup: %s, %s", name, message)
	}
	second.mustAlloc(gib / 2)
	other.mustAlloc(70 * gib)
	r := second.call(Request{Op: opInfo})
	if want := (mpssim.Memory{TotalBytes: 4 * gib, FreeBytes: 3*gib/2 - 2*contextBytes}); r.Memory == nil || *r.Memory != want {
		t.Errorf("memory %+v, want %+v", r, want)
	}
	name, message = other.alloc(20 * gib)
	if name != errOutOfMemory || strings.Contains(message, "cgroup") {
		t.Errorf("more than the GPU has: %s, %s", name, message)
	}
}

func TestALimitBelowWhatAContextNeeds(t *testing.T) {
	w := newWorld(t, nil)
	container := cgrouptest.New(t)
	w.limit(container, contextBytes-1)
	c := w.started(cgrouptest.Process(t, container))
	if name, message := c.alloc(0); name != errOutOfMemory || !strings.Contains(message, "no context") {
		t.Errorf("%s, %s", name, message)
	}
	if got := w.used(); len(got) > 0 {
		t.Errorf("in use: %v", got)
	}
}

// A limit of a parent is enforced by dmem, and not reported.
func TestTheMemoryThatCUDAReports(t *testing.T) {
	for backend, wantTotal := range map[string]uint64{nvmlsim.MemoryLimitsDmem: (81559 - 551) << 20, nvmlsim.MemoryLimitsMisc: 4 * gib} {
		t.Run(backend, func(t *testing.T) {
			w := newWorld(t, func(m *nvmlsim.Model) { m.MemoryLimits = backend })
			parent := cgrouptest.New(t)
			child := cgrouptest.Child(t, parent, "child")
			w.limit(parent, 4*gib)
			c := w.started(cgrouptest.Process(t, child))
			if r := c.call(Request{Op: opInfo}); r.Memory == nil || r.Memory.TotalBytes != wantTotal {
				t.Errorf("memory %+v, want %d in all", r, wantTotal)
			}
			if name, _ := c.alloc(4 * gib); name != errOutOfMemory {
				t.Errorf("more than the parent's limit: %q", name)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, w *world) error
		call    Request
		want    string
		says    string
	}{
		"an exclusive GPU of another process": {
			prepare: func(t *testing.T, w *world) error {
				pid, _ := sleeping(t)
				w.started(pid).mustAlloc(gib)
				return w.sim.SetComputeMode(0, nvmlsim.ComputeModeExclusiveProcess)
			},
			call: Request{Op: opAlloc}, want: errDeviceUnavailable, says: "compute mode ExclusiveProcess",
		},
		"an exclusive GPU of an MPS server": {
			prepare: func(t *testing.T, w *world) error {
				end, err := w.sim.RegisterMPSDaemon("a", nil)
				if err != nil {
					return err
				}
				t.Cleanup(end)
				devices, err := w.sim.ComputeDevices()
				return errors.Join(err, w.sim.SetComputeMode(0, nvmlsim.ComputeModeExclusiveProcess),
					w.sim.SetMPSServer(nvmlsim.MPSServer{PID: 7, Daemon: "a", Memory: map[string]uint64{devices[0].UUID: 1}}))
			},
			call: Request{Op: opAlloc}, want: errDeviceUnavailable, says: "nvidia-cuda-mps-server",
		},
		"a prohibited GPU": {
			prepare: func(_ *testing.T, w *world) error { return w.sim.SetComputeMode(0, nvmlsim.ComputeModeProhibited) },
			call:    Request{Op: opAlloc}, want: errDeviceUnavailable, says: "compute mode Prohibited",
		},
		"another GPU than the exclusive one": {
			prepare: func(_ *testing.T, w *world) error { return w.sim.SetComputeMode(0, nvmlsim.ComputeModeProhibited) },
			call:    Request{Op: opAlloc, Device: 1},
		},
		"a fabric that is not ready": {
			prepare: func(_ *testing.T, w *world) error { return w.sim.SetFabric(1, nvmlsim.FabricInProgress) },
			call:    Request{Op: opInit}, want: errSystemNotReady, says: "802",
		},
		"no driver": {
			prepare: func(_ *testing.T, w *world) error { return w.sim.UnloadDriver() },
			call:    Request{Op: opInit}, want: errNoDevice,
		},
		"no device nodes": {
			prepare: func(t *testing.T, w *world) error { w.root = t.TempDir(); return nil },
			call:    Request{Op: opInit}, want: errNoDevice,
		},
		"a device that does not exist": {call: Request{Op: opAlloc, Device: 2}, want: errInvalidDevice},
		"an absurd size":               {call: Request{Op: opAlloc, Bytes: 1 << 63}, want: errOutOfMemory},
		"an unknown operation":         {call: Request{Op: "launch"}, want: errInvalidValue},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			pid, _ := sleeping(t)
			if tc.prepare != nil {
				must(t, tc.prepare(t, w))
			}
			c := w.connect(pid)
			if tc.call.Op != opInit {
				if r := c.call(Request{Op: opAlloc}); r.Error == nil || r.Error.Name != errNotInitialized {
					t.Errorf("before init: %+v", r)
				}
				if r := c.call(Request{Op: opInit}); r.Error != nil {
					t.Fatal(r.Error)
				}
			}
			r := c.call(tc.call)
			if r.Error == nil {
				r.Error = fail("", "")
			}
			if r.Error.Name != tc.want || !strings.Contains(r.Error.Message, tc.says) {
				t.Errorf("got %v, want %s with %q", r.Error, tc.want, tc.says)
			}
			if tc.want != "" && r.Error.Code == 0 {
				t.Errorf("%s has no number", r.Error.Name)
			}
			if got, ok := w.used()[pid]; ok {
				t.Errorf("the refused process has %d MiB", got>>20)
			}
		})
	}
}

func TestAProcessOfAnotherPIDNamespaceIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(0)
	if r := c.call(Request{Op: opInit}); r.Error == nil || r.Error.Name != errNotPermitted {
		t.Errorf("got %+v", r)
	}
	c.ended()
}

// A container has the nodes of its own devices only.
func TestAProcessHasTheDevicesOfItsNodes(t *testing.T) {
	w := newWorld(t, nil)
	w.root = t.TempDir()
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia1"} {
		must(t, os.MkdirAll(filepath.Join(w.root, "dev"), 0o755))
		must(t, os.Link(filepath.Join(w.sim.Root(), "dev", name), filepath.Join(w.root, "dev", name)))
	}
	pid, _ := sleeping(t)
	all, err := w.sim.ComputeDevices()
	must(t, err)
	c := w.connect(pid)
	r := c.call(Request{Op: opInit})
	if len(r.Devices) != 1 || r.Devices[0].UUID != all[1].UUID {
		t.Fatalf("devices %+v, want %s", r, all[1].UUID)
	}
	c.mustAlloc(gib)
	if got := w.used(); len(got) > 0 {
		t.Errorf("in use of the first GPU: %v", got)
	}
}

// Source: NVIDIA Dynamo, "Per-GPU Compute and Memory Limits with MPS", Verified Behavior:
// an RTX PRO 6000 Blackwell, driver 615.71.09, in steps of 256 MiB.
func TestTheMemoryOfACgroupAsMeasured(t *testing.T) {
	const mib, step = 1 << 20, 256 << 20
	for name, tc := range map[string]struct {
		limit, allocatable, total uint64 // MiB
		onParent                  bool
	}{
		"the container's own cgroup": {limit: 30000, allocatable: 29184, total: 30000},
		"a parent slice":             {limit: 48943, allocatable: 48128, total: 97887 - 638, onParent: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := nvmlsim.LoadModel("rtx-pro-6000")
			must(t, err)
			m.GPUs = m.GPUs[:1]
			w := newWorldOf(t, m)
			parent := cgrouptest.New(t)
			container := cgrouptest.Child(t, parent, "container")
			if tc.onParent {
				w.limit(parent, tc.limit*mib)
			} else {
				w.limit(container, tc.limit*mib)
			}
			c := w.started(cgrouptest.Process(t, container))
			if r := c.call(Request{Op: opInfo}); r.Memory == nil || r.Memory.TotalBytes != tc.total*mib {
				t.Errorf("memory %+v, want %d MiB in all", r.Memory, tc.total)
			}
			c.mustAlloc(tc.allocatable * mib)
			if name, _ := c.alloc(step); name != errOutOfMemory {
				t.Errorf("one step more: %q, want %s", name, errOutOfMemory)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
