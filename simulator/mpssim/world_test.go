// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// world is a simulated node with one control daemon.
type world struct {
	t       *testing.T
	sim     *nvmlsim.Sim
	options Options
	// users say who connects next.
	users  chan user
	faults chan os.Signal
	stop   context.CancelFunc
	ended  chan error
}

// newWorld makes a node of a model and a daemon of the given devices.
func newWorld(t *testing.T, model string, devices ...string) *world {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	return newWorldOf(t, m, devices...)
}

func newWorldOf(t *testing.T, m *nvmlsim.Model, devices ...string) *world {
	t.Helper()
	sim, err := nvmlsim.Create(t.TempDir(), m)
	must(t, err)
	w := &world{t: t, sim: sim, users: make(chan user, 1), faults: make(chan os.Signal)}
	w.options = Options{
		PipeDirectory: filepath.Join(shortDir(t), "pipe"), LogDirectory: t.TempDir(), Shm: t.TempDir(),
		VisibleDevices: devices, Faults: w.faults,
		identify: func(*net.UnixConn) (user, error) { return <-w.users, nil },
	}
	return w
}

// shortDir is a folder whose sockets have paths short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") //nolint:usetesting // t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// Servers of other users pass through it.
	must(t, os.Chmod(dir, 0o711))
	return dir
}

// start runs the daemon until the test ends.
func (w *world) start() *world {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	w.stop, w.ended = stop, ended
	go func() { ended <- Run(ctx, w.sim, w.options, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		w.t.Fatalf("the daemon ended: %v", err)
	}
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the daemon ended: %v", err)
		}
		ended <- nil
	})
	return w
}

func me() user { return user{pid: os.Getpid(), uid: os.Getuid()} }

// command runs commands and returns their output.
func (w *world) command(commands ...string) string {
	w.t.Helper()
	w.users <- me()
	var out strings.Builder
	if err := Control(w.t.Context(), w.options.PipeDirectory, strings.NewReader(strings.Join(commands, "\n")), &out); err != nil {
		w.t.Fatalf("%s: %v", commands, err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (w *world) record() Record {
	w.t.Helper()
	r, err := ReadRecord(w.options.LogDirectory)
	if err != nil {
		w.t.Fatal(err)
	}
	return *r
}

// processes of the GPUs, as the node shows them.
func (w *world) processes() []nvmlsim.Process {
	w.t.Helper()
	view, err := w.sim.View()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []nvmlsim.Process
	for _, g := range view.GPUs {
		all = append(all, g.Processes...)
	}
	return all
}

// mpsClient is a client as a test drives it.
type mpsClient struct {
	w       *world
	conn    net.Conn
	encoder *json.Encoder
	decoder *json.Decoder
}

// connect sends the first request of a user's process.
func (w *world) connect(u user, percentage, memory string) *mpsClient {
	w.t.Helper()
	w.users <- u
	conn, err := net.Dial("unix", filepath.Join(w.options.PipeDirectory, socketName))
	if err != nil {
		w.t.Fatal(err)
	}
	c := &mpsClient{w: w, conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}
	w.t.Cleanup(func() { _ = conn.Close() })
	c.send(Request{Op: opConnect, ActiveThreadPercentage: percentage, PinnedDeviceMemLimit: memory})
	return c
}

// join is a client that is admitted at once.
func (w *world) join(u user, percentage, memory string) (*mpsClient, Granted) {
	w.t.Helper()
	c := w.connect(u, percentage, memory)
	return c, c.attach(c.read())
}

func (c *mpsClient) attach(admitted Reply) Granted {
	c.w.t.Helper()
	if admitted.Error != nil || admitted.Shm == "" {
		c.w.t.Fatalf("not admitted: %+v", admitted)
	}
	token, err := os.ReadFile(filepath.Join(c.w.options.Shm, admitted.Shm))
	if err != nil {
		c.w.t.Fatal(err)
	}
	r := c.ask(Request{Op: opAttach, Token: string(token)})
	if r.Client == nil {
		c.w.t.Fatalf("not attached: %+v", r)
	}
	return *r.Client
}

func (c *mpsClient) send(r Request) {
	c.w.t.Helper()
	if err := c.encoder.Encode(r); err != nil {
		c.w.t.Fatal(err)
	}
}

func (c *mpsClient) read() Reply {
	c.w.t.Helper()
	var r Reply
	if err := c.decoder.Decode(&r); err != nil {
		c.w.t.Fatal(err)
	}
	return r
}

func (c *mpsClient) ask(r Request) Reply {
	c.w.t.Helper()
	c.send(r)
	return c.read()
}

// leave closes the connection and waits until the daemon has seen it.
func (c *mpsClient) leave() {
	c.w.t.Helper()
	_ = c.conn.Close()
}

// errorOf is the name of a reply's error; empty for none.
func errorOf(r Reply) string {
	if r.Error == nil {
		return ""
	}
	return r.Error.Name
}

// eventually waits for what follows from the end of another process or
// connection, which nothing announces.
func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("no sign of %s", what)
		}
	}
}

// migDevice makes the smallest MIG device of the first GPU.
func migDevice(t *testing.T, sim *nvmlsim.Sim) (uuid string) {
	t.Helper()
	lib := sim.NVML()
	check := func(ret nvml.Return) {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	check(lib.Init())
	t.Cleanup(func() { check(lib.Shutdown()) })
	device, ret := lib.DeviceGetHandleByIndex(0)
	check(ret)
	_, ret = device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	check(ret)
	info, ret := device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	check(ret)
	instance, ret := device.CreateGpuInstance(&info)
	check(ret)
	compute, ret := instance.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	check(ret)
	_, ret = instance.CreateComputeInstance(&compute)
	check(ret)
	mig, ret := device.GetMigDeviceHandleByIndex(0)
	check(ret)
	uuid, ret = mig.GetUUID()
	check(ret)
	return uuid
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
