// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestADeviceAdmits48Clients(t *testing.T) {
	m, err := nvmlsim.LoadModel("dgx-h100")
	must(t, err)
	m.GPUs = m.GPUs[:1]
	w := newWorldOf(t, m).start()
	var clients []*mpsClient
	for i := range nvmlsim.MPSMaxClients {
		c, _ := w.join(user{pid: 1000 + i, uid: os.Getuid()}, "2", "0=1G")
		clients = append(clients, c)
	}
	refused := w.connect(user{pid: 2000, uid: os.Getuid()}, "", "").read()
	if errorOf(refused) != errMaxClientsReached || refused.Error.Code != 808 {
		t.Errorf("a 49th client: %+v", refused)
	}
	server := w.command("get_server_list")
	if got := strings.Fields(w.command("get_client_list " + server)); len(got) != 48 || got[0] != "1000" || got[47] != "1047" {
		t.Errorf("clients %v", got)
	}
	clients[0].leave()
	w.eventually("a place to be free", func() bool {
		return len(strings.Fields(w.command("get_client_list "+server))) == 47
	})
	w.join(user{pid: 2001, uid: os.Getuid()}, "", "")
}

func TestAClientIsRefusedWhileItsGPUIsNotInTheFabric(t *testing.T) {
	w := newWorld(t, "dgx-h100", "0").start()
	early, _ := w.join(user{pid: 1, uid: os.Getuid()}, "", "")
	set := func(state nvmlsim.FabricState) {
		t.Helper()
		must(t, w.sim.SetFabric(0, state))
	}
	set(nvmlsim.FabricNotStarted)
	if got := w.connect(user{pid: 2, uid: os.Getuid()}, "", "").read(); errorOf(got) != errSystemNotReady || got.Error.Code != 802 {
		t.Errorf("got %+v, want CUDA error 802", got)
	}
	if got := early.ask(Request{Op: opAlloc, Bytes: 1 << 30}); got.Error != nil {
		t.Errorf("a client that was there before: %v", got.Error)
	}
	set(nvmlsim.FabricCompleted)
	w.join(user{pid: 3, uid: os.Getuid()}, "", "")
}

func TestAServerDoesNotStartWhileItsGPUIsNotInTheFabric(t *testing.T) {
	w := newWorld(t, "dgx-h100", "0").start()
	must(t, w.sim.SetFabric(0, nvmlsim.FabricInProgress))
	w.command("start_server -uid " + strconv.Itoa(os.Getuid()))
	if got := w.command("get_server_list"); got != "" {
		t.Errorf("servers %q, want none", got)
	}
	if got := w.processes(); len(got) != 0 {
		t.Errorf("processes %v, want none", got)
	}
}

func TestAnotherUserWaitsForTheServerOfTheFirst(t *testing.T) {
	if os.Getuid() != 0 {
		// A daemon serves only its own user, unless that is root.
		w := newWorld(t, "t4", "0").start()
		if got := w.connect(user{pid: 1, uid: os.Getuid() + 1}, "", "").read(); errorOf(got) != errConnectionFailed {
			t.Errorf("got %+v", got)
		}
		return
	}
	w := newWorld(t, "t4", "0").start()
	first, granted := w.join(user{pid: 1, uid: 1000}, "", "")
	w.command("set_default_active_thread_percentage 20")
	second := w.connect(user{pid: 2, uid: 2000}, "", "")
	if got := second.read(); !strings.Contains(got.Waiting, "user 1000") {
		t.Errorf("the second gets %+v", got)
	}
	third := w.connect(user{pid: 3, uid: 2000}, "", "")
	if got := third.read(); got.Waiting == "" {
		t.Errorf("the third gets %+v", got)
	}
	first.leave()
	next := second.attach(second.read())
	if next.Server == granted.Server || next.ActiveThreadPercentage != 20 {
		t.Errorf("the second's server: %+v after %+v", next, granted)
	}
	if got := third.attach(third.read()); got.Server != next.Server {
		t.Errorf("the third has server %d, the second %d", got.Server, next.Server)
	}
}

func TestInMultiUserModeAllUsersShareAServer(t *testing.T) {
	w := newWorld(t, "t4", "0")
	w.options.MultiUser = true
	w.start()
	other := user{pid: 2, uid: 2000}
	if os.Getuid() != 0 {
		other.uid = os.Getuid()
	}
	_, first := w.join(me(), "", "")
	if _, second := w.join(other, "", ""); first.Server != second.Server {
		t.Errorf("servers %d and %d", first.Server, second.Server)
	}
	if server := w.record().Servers[0]; server.UID != os.Getuid() {
		t.Errorf("the server is user %d's", server.UID)
	}
}

func TestAClientNeedsTheShmOfItsServer(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	c := w.connect(me(), "", "")
	if got := c.read(); got.Shm == "" {
		t.Fatalf("got %+v", got)
	}
	if got := c.ask(Request{Op: opAlloc, Bytes: 1}); errorOf(got) != errInvalidValue {
		t.Errorf("an allocation before that: %+v", got)
	}
	if got := c.ask(Request{Op: opAttach}); errorOf(got) != errConnectionFailed || !strings.Contains(got.Error.Message, "/dev/shm") {
		t.Errorf("got %+v", got)
	}
	if got := w.record(); len(got.Refused) != 1 {
		t.Errorf("record %+v", got)
	}
}

func TestTheServerIsAProcessOfItsDevices(t *testing.T) {
	w := newWorld(t, "dgx-h100", "0", "1").start()
	if got := w.processes(); got != nil {
		t.Errorf("before the first client: %v", got)
	}
	c, granted := w.join(me(), "", "")
	c.ask(Request{Op: opAlloc, Device: 1, Bytes: 1 << 30})
	daemon := nameOf(w.options.PipeDirectory)
	server := nvmlsim.Process{PID: granted.Server, Name: nvmlsim.MPSServerName, MemoryBytes: serverBytes, Daemon: daemon}
	zero := nvmlsim.Process{PID: os.Getpid(), MemoryBytes: contextBytes, Daemon: daemon, MPSClient: true}
	one := zero
	one.MemoryBytes += 1 << 30
	if diff := cmp.Diff([]nvmlsim.Process{zero, one, server, server}, w.processes(), cmpopts.SortSlices(func(a, b nvmlsim.Process) bool {
		return a.PID < b.PID || a.PID == b.PID && a.MemoryBytes < b.MemoryBytes
	})); diff != "" {
		t.Errorf("with a client (-want +got):\n%s", diff)
	}
	if err := w.sim.ResetGPU(0); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("a reset of its GPU: %v", err)
	}
	c.leave()
	w.eventually("the memory to be back", func() bool {
		p := w.processes()
		return len(p) == 2 && p[0].MemoryBytes == serverBytes && p[1].MemoryBytes == serverBytes
	})
	w.command("quit")
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil
	if got := w.processes(); got != nil {
		t.Errorf("after quit: %v", got)
	}
	if entries, err := os.ReadDir(w.options.Shm); err != nil || len(entries) > 0 {
		t.Errorf("left in /dev/shm: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(w.options.PipeDirectory); err != nil || len(entries) > 0 {
		t.Errorf("left in the pipe directory: %v, %v", entries, err)
	}
}

func TestComputeModesAdmitOrRefuseTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   nvmlsim.ComputeMode
		other  bool
		refuse bool
	}{
		"default with another process":   {nvmlsim.ComputeModeDefault, true, false},
		"exclusive":                      {nvmlsim.ComputeModeExclusiveProcess, false, false},
		"exclusive with another process": {nvmlsim.ComputeModeExclusiveProcess, true, true},
		"prohibited":                     {nvmlsim.ComputeModeProhibited, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "t4", "0").start()
			if tc.other {
				must(t, w.sim.AddProcess(0, nvmlsim.Process{PID: 1, Name: "other"}))
			}
			must(t, w.sim.SetComputeMode(0, tc.mode))
			got := w.connect(me(), "", "").read()
			if want := map[bool]string{true: errConnectionFailed}[tc.refuse]; errorOf(got) != want {
				t.Errorf("got %+v", got)
			}
			if tc.refuse && w.command("get_server_list") != "" {
				t.Error("there is a server")
			}
		})
	}
}

func TestMPSOnAMIGDevice(t *testing.T) {
	w := newWorld(t, "dgx-h100")
	uuid := migDevice(t, w.sim)
	w.options.VisibleDevices = []string{uuid}
	w.start()
	c, got := w.join(me(), "50", "0=4G")
	device := got.Devices[0]
	if device.UUID != uuid || device.MemoryBytes != 9984<<20 || device.LimitBytes != 4<<30 {
		t.Errorf("got %+v", device)
	}
	if r := c.ask(Request{Op: opAlloc, Bytes: 4<<30 - h100.ContextBytes(8)}); r.Error != nil {
		t.Error(r.Error)
	}
	if p := w.processes(); len(p) != 2 || p[0].Device != uuid || p[1].Device != uuid {
		t.Errorf("processes %+v", p)
	}
}

func TestClientsEndWhenTheirServerIsKilled(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	c, granted := w.join(me(), "", "")
	must(t, syscall.Kill(granted.Server, syscall.SIGKILL))
	if got := c.read(); errorOf(got) != errRPCFailure {
		t.Errorf("the client gets %+v", got)
	}
	if _, next := w.join(me(), "", ""); next.Server == granted.Server {
		t.Error("the next client has the same server")
	}
	if got := w.record().Servers[0]; got.Status != ended || got.Clients[0].Ended == "" {
		t.Errorf("record %+v", got)
	}
}

func TestAFatalExceptionHitsAllClientsUntilTheyHaveGone(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	first, granted := w.join(me(), "", "")
	second, _ := w.join(me(), "", "")
	status := "get_server_status " + strconv.Itoa(granted.Server)
	if got := w.command(status); got != "ACTIVE" {
		t.Errorf("at first: %s", got)
	}
	w.faults <- syscall.SIGUSR1
	for _, c := range []*mpsClient{first, second} {
		if got := c.read(); errorOf(got) != errLaunchFailed {
			t.Errorf("a client gets %+v", got)
		}
		if got := c.ask(Request{Op: opAlloc, Bytes: 1}); errorOf(got) != errLaunchFailed {
			t.Errorf("an allocation returns %+v", got)
		}
	}
	if got := w.command(status); got != "FAULT" {
		t.Errorf("then: %s", got)
	}
	if got := w.connect(me(), "", "").read(); errorOf(got) != errServerNotReady {
		t.Errorf("a new client: %+v", got)
	}
	first.leave()
	second.leave()
	w.eventually("the server to recover", func() bool { return w.command(status) == "ACTIVE" })
	if _, next := w.join(me(), "", ""); next.Server != granted.Server {
		t.Errorf("server %d, before %d", next.Server, granted.Server)
	}
}

func TestAClientIsTerminated(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	c, granted := w.join(user{pid: 77, uid: os.Getuid()}, "", "")
	server := strconv.Itoa(granted.Server)
	if got := w.command("terminate_client " + server + " 78"); got != "Client 78 not found" {
		t.Errorf("got %q", got)
	}
	if got := w.command("terminate_client " + server + " 77"); got != "0" {
		t.Errorf("got %q", got)
	}
	if got := c.read(); errorOf(got) != errClientTerminated {
		t.Errorf("it gets %+v", got)
	}
	if got := w.command("get_client_list " + server); got != "" {
		t.Errorf("clients %q", got)
	}
}

func TestWrongCommandsAreAnsweredInWords(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	if got := w.command("start_server -uid 0"); got != "" {
		t.Fatal(got)
	}
	server := w.command("get_server_list")
	for command, want := range map[string]string{
		"get_servers":                                     "Unknown command: get_servers",
		"get_server_status":                               "Usage: get_server_status PID",
		"get_server_status 1":                             "Server 1 not found",
		"get_client_list many":                            "Server many not found",
		"get_server_list now":                             "Usage: get_server_list",
		"start_server -uid 0":                             "Server " + server + " of user 0 already exists",
		"start_server 0 0":                                "Usage: start_server -uid UID",
		"set_default_active_thread_percentage 0":          `percentage "0"`,
		"set_default_active_thread_percentage 200":        `percentage "200"`,
		"set_default_device_pinned_mem_limit 0 1":         `size "1"`,
		"set_default_device_pinned_mem_limit 0 1.5G":      `size "1.5G"`,
		"set_default_device_pinned_mem_limit 1G":          "Usage: set_default_device_pinned_mem_limit DEVICE SIZE",
		"set_active_thread_percentage " + server + " 0":   `percentage "0"`,
		"set_device_pinned_mem_limit " + server + " 0 0M": `size "0M"`,
	} {
		if got := w.command(command); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	if got := w.command("get_default_active_thread_percentage"); got != "100.0" {
		t.Errorf("the default is %s", got)
	}
}

func TestOnlyRootAndItsOwnUserCommandADaemon(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	w.users <- user{pid: 1, uid: os.Getuid() + 1}
	err := Control(t.Context(), w.options.PipeDirectory, strings.NewReader("quit"), &strings.Builder{})
	if err == nil || w.command("get_server_list") != "" {
		t.Errorf("got %v", err)
	}
}

func TestARecordGoesOnOverARestart(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	w.command("set_default_active_thread_percentage 30")
	w.join(me(), "25", "")
	w.stop()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil
	w.start()
	got := w.record()
	// Defaults are lost, as with the real one.
	if got.Starts != 2 || got.Defaults.ActiveThreadPercentage != 100 {
		t.Errorf("record %+v", got)
	}
	if s := got.Servers[0]; s.Status != ended || s.Limits.ActiveThreadPercentage != 30 || s.Clients[0].ActiveThreadPercentage != 25 || s.Clients[0].Ended == "" {
		t.Errorf("the earlier server %+v", s)
	}
	daemons, err := List(w.sim)
	must(t, err)
	if len(daemons) != 1 || !daemons[0].Running || daemons[0].PipeDirectory != w.options.PipeDirectory || daemons[0].Record.Starts != 2 {
		t.Errorf("list %+v", daemons)
	}
}

func TestDaemonStartFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world)
		want    error
	}{
		"another one in its pipe directory": {func(w *world) { w.start() }, simerr.ErrInUse},
		"a path too long for a socket": {func(w *world) {
			// Of the real daemon's sockets not all would fit.
			const one = "/control_privileged"
			w.options.PipeDirectory += "/" + strings.Repeat("x", maxSocketPath-len(w.options.PipeDirectory)-len(one))
		}, simerr.ErrInvalid},
		"nonsense in its environment": {func(w *world) { w.options.ActiveThreadPercentage = "all" }, simerr.ErrInvalid},
		"a fault": {func(w *world) {
			if err := w.sim.FailMPSStarts(1); err != nil {
				w.t.Fatal(err)
			}
		}, simerr.ErrNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "t4", "0")
			tc.prepare(w)
			if err := Run(t.Context(), w.sim, w.options, func() { t.Error("it is ready") }); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("a fault strikes as often as requested", func(t *testing.T) {
		w := newWorld(t, "t4", "0")
		must(t, w.sim.FailMPSStarts(1))
		if err := w.sim.StartMPSDaemon(); !errors.Is(err, simerr.ErrNotReady) {
			t.Errorf("got %v", err)
		}
		w.start()
	})
}

func TestTheServerReportsAMissingDevice(t *testing.T) {
	w := newWorld(t, "t4", "MIG-nobody").start()
	if got := w.connect(me(), "", "").read(); errorOf(got) != errConnectionFailed || !strings.Contains(got.Error.Message, "MIG-nobody") {
		t.Errorf("got %+v", got)
	}
}
