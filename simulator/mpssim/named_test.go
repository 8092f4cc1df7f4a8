// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// newNamedWorld is a world whose daemon has protocol 3, one GPU and several users.
func newNamedWorld(t *testing.T, config string) *world {
	t.Helper()
	m, err := nvmlsim.LoadModel("dgx-h100")
	must(t, err)
	m.DriverVersion, m.GPUs = "615.71.09", m.GPUs[:2]
	w := newWorldOf(t, m, "0")
	w.options.Protocol, w.options.MultiUser = protocolNamed, true
	if config != "" {
		w.options.Apply = filepath.Join(t.TempDir(), "mps.toml")
		must(t, os.WriteFile(w.options.Apply, []byte(config), 0o600))
	}
	return w
}

// call runs a command of protocol 3, and returns its output and its error.
func (w *world) call(args ...string) (string, error) {
	w.t.Helper()
	w.users <- me()
	var out strings.Builder
	err := Control(w.t.Context(), w.options.PipeDirectory, strings.NewReader(""), &out, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// calls runs commands that succeed and say nothing.
func (w *world) calls(commands ...string) {
	w.t.Helper()
	for _, command := range commands {
		if out, err := w.call(strings.Fields(command)...); err != nil || out != "" {
			w.t.Fatalf("%s: %q, %v", command, out, err)
		}
	}
}

// connectThrough sends the first request of a client through a folder of the pipe
// directory.
func (w *world) connectThrough(folder string, u user, percentage, memory string) *mpsClient {
	w.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(w.options.PipeDirectory, folder, socketName))
	if err != nil {
		w.t.Fatal(err)
	}
	w.users <- u
	c := &mpsClient{w: w, conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}
	w.t.Cleanup(func() { _ = conn.Close() })
	c.send(Request{Op: opConnect, ActiveThreadPercentage: percentage, PinnedDeviceMemLimit: memory})
	return c
}

func TestANamespaceLimitsItsClients(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0", "server set s --active-thread-percentage=1 --pinned-memory-limit=1M",
		"namespace create a --server=s", "namespace set a --server=s --active-thread-percentage=30 --pinned-memory-limit=4G",
		"namespace create free --server=s")
	for name, tc := range map[string]struct {
		folder, percentage, memory string
		wantPercentage             float64
		wantLimit                  uint64
	}{
		"its limits":                         {"s/a", "", "", 30, 4 << 30},
		"a higher percentage of its own":     {"s/a", "80", "", 30, 4 << 30},
		"a lower percentage of its own":      {"s/a", "10", "", 30, 4 << 30},
		"a lower memory limit of its own":    {"s/a", "", "0=2G", 30, 2 << 30},
		"a higher memory limit of its own":   {"s/a", "", "0=8G", 30, 4 << 30},
		"a limit for a device it cannot see": {"s/a", "", "0=2G,1=4G", 30, 0},
		"the default namespace":              {"s/default", "", "", 1, 1 << 20},
		"the folder of the server":           {"s", "", "", 1, 1 << 20},
		"the folder of the daemon":           {"", "", "", 1, 1 << 20},
		"a namespace inherits nothing":       {"s/free", "", "", 100, 0},
		"a namespace without a percentage":   {"s/free", "20", "", 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.connectThrough(tc.folder, user{pid: 7, uid: 1000}, tc.percentage, tc.memory)
			got := c.attach(c.read())
			if got.ActiveThreadPercentage != tc.wantPercentage || got.Devices[0].LimitBytes != tc.wantLimit {
				t.Errorf("got %g %% and %d bytes, want %g and %d", got.ActiveThreadPercentage, got.Devices[0].LimitBytes, tc.wantPercentage, tc.wantLimit)
			}
		})
	}
	out, err := w.call("namespace", "list", "--server=s", "--format=csv,noheader")
	pipe := w.options.PipeDirectory + "/s/"
	want := fmt.Sprintf("default,s,Ready,1M,1.00,0,%[1]sdefault\na,s,Ready,4G,30.00,0,%[1]sa\nfree,s,Ready,-,-,0,%[1]sfree", pipe)
	if diff := cmp.Diff(want, out); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestClientsOfSeveralUsersComputeAtATimeInMultiUserMode(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0")
	for _, uid := range []int{0, 1000, 2000} {
		c := w.connectThrough("s/default", user{pid: 100 + uid, uid: uid}, "", "")
		c.attach(c.read())
	}
	single := newNamedWorld(t, "")
	single.options.MultiUser = false
	single.start()
	single.calls("server create s")
	c := single.connectThrough("s/default", me(), "", "")
	c.attach(c.read())
	if got := single.connectThrough("s/default", user{pid: 1, uid: os.Getuid() + 1}, "", "").read(); errorOf(got) != errNotPermitted || got.Error.Code != 800 {
		t.Errorf("another user gets %+v", got)
	}
}

func TestCommandsOfProtocol3ThatAreRefused(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0", "namespace create a --server=s")
	c := w.connectThrough("s/a", user{pid: 7, uid: 1000}, "", "")
	c.attach(c.read())
	for command, want := range map[string]string{
		"server create Big --uid=0":                                   "invalid name",
		"server create s --uid=0":                                     "already exists",
		"server create other --uid=1000":                              "multiuser",
		"server delete s":                                             "active clients",
		"server delete none":                                          "not found",
		"namespace create a-b --server=s":                             "invalid name",
		"namespace create " + strings.Repeat("a", 65) + " --server=s": "invalid name",
		"namespace create a --server=s":                               "already exists",
		"namespace create b --server=none":                            "not found",
		"namespace create b":                                          "--server",
		"namespace delete a --server=s":                               "active clients",
		"namespace delete default --server=s --force":                 "default",
		"namespace set a --server=s":                                  "at least one",
		"namespace set a --server=s --active-thread-percentage=101":   "percentage",
		"namespace set a --server=s --pinned-memory-limit=10":         "memory limit",
		"namespace set a --server=s --threads=1":                      "unknown option",
		"sm-partition list":                                           "unknown command",
		"get_server_list":                                             "usage",
		"namespace list --server=s --format=json":                     "invalid format",
		"namespace set none --server=s --active-thread-percentage=10": "not found",
		"namespace set a --server=s --client-priority=7":              "priority",
	} {
		out, err := w.call(strings.Fields(command)...)
		if !errors.Is(err, errRefused) || !strings.Contains(out, want) {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
	if out, err := w.call("namespace", "get", "a", "s", "active-thread-percentage"); err != nil || out != "-" {
		t.Errorf("a refused setting has changed something: %q, %v", out, err)
	}
	w.calls("namespace delete a --server=s --force")
	if _, err := os.Stat(filepath.Join(w.options.PipeDirectory, "s/a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a deleted namespace: %v", err)
	}
	w.calls("server delete s --force")
	if got := c.read(); errorOf(got) != errClientTerminated {
		t.Errorf("a client of a deleted server gets %+v", got)
	}
}

func TestAServerOfAMissingDeviceDisappears(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0 --allowed-devices=GPU-gone")
	if out, err := w.call("server", "list", "--format=csv,noheader"); err != nil || out != "" {
		t.Errorf("servers %q, %v; want none", out, err)
	}
	log, err := os.ReadFile(filepath.Join(w.options.LogDirectory, "s/server.log"))
	if err != nil || !strings.Contains(string(log), "no CUDA-capable device is detected") {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestAServerHasItsAllowedDevices(t *testing.T) {
	w := newNamedWorld(t, "")
	w.options.VisibleDevices = nil
	w.start()
	all, err := w.sim.ComputeDevices()
	must(t, err)
	w.calls("server create one --uid=0 --allowed-devices="+all[1].UUID, "server create both --uid=0")
	for folder, want := range map[string]int{"one": 1, "both": 2} {
		c := w.connectThrough(folder, me(), "", "")
		if got := c.attach(c.read()); len(got.Devices) != want || got.Devices[want-1].UUID != all[1].UUID {
			t.Errorf("%s: devices %+v", folder, got.Devices)
		}
	}
	out, err := w.call("server", "list", "--format=csv,noheader")
	if lines := strings.Split(out, "\n"); err != nil || len(lines) != 2 || !strings.HasSuffix(lines[0], ",Ready,"+w.options.PipeDirectory+"/one,"+all[1].UUID+",-") {
		t.Errorf("%q, %v", out, err)
	}
	// Each is a process of its devices.
	w.calls("server delete one --force")
	w.eventually("one server to be left", func() bool {
		servers := map[int]bool{}
		for _, p := range w.processes() {
			if p.Name == nvmlsim.MPSServerName {
				servers[p.PID] = true
			}
		}
		return len(servers) == 1
	})
}

func TestAConfigurationFileAppliesBeforeAClientConnects(t *testing.T) {
	const config = `schema_version = "1.0"

[servers.s]
allowed_devices = "0"
uid = 0
active_thread_percentage = "1"
pinned_memory_limit = "1M"

[servers.s.namespaces.a]
active_thread_percentage = "25"
`
	w := newNamedWorld(t, config).start()
	for folder, want := range map[string]float64{"s/a": 25, "s": 1} {
		c := w.connectThrough(folder, me(), "", "")
		if got := c.attach(c.read()); got.ActiveThreadPercentage != want {
			t.Errorf("%s: %g %%, want %g", folder, got.ActiveThreadPercentage, want)
		}
	}
	// What commands have set ends with the daemon.
	w.calls("namespace create b --server=s")
	w.stop()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil
	w.start()
	if out, err := w.call("namespace", "list", "b", "--server=s", "--format=csv,noheader"); err != nil || out != "" {
		t.Errorf("got %q, %v", out, err)
	}
	for name, text := range map[string]string{
		"an unknown key of a server":    "[servers.s]\nthreads = \"1\"\n",
		"an unknown key of a namespace": "[servers.s]\n[servers.s.namespaces.a]\nuid = 0\n",
		"a namespace of no server":      "[servers.s.namespaces.a]\n",
		"a number for a text":           "[servers.s]\npinned_memory_limit = 1\n",
		"a bad name":                    "[servers.S]\nuid = 0\n",
		"a bad percentage":              "[servers.s]\nuid = 0\nactive_thread_percentage = \"0\"\n",
		"an unknown table":              "[devices]\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newNamedWorld(t, text)
			if err := Run(t.Context(), w.sim, w.options, func() { t.Error("it is ready") }); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

func TestTheSocketOfANamespaceTakesNoCommands(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0")
	w.users <- me()
	err := Control(t.Context(), filepath.Join(w.options.PipeDirectory, "s/default"), strings.NewReader(""), &strings.Builder{}, "server", "delete", "s", "--force")
	if out, listErr := w.call("server", "list", "--format=csv,noheader"); err == nil || listErr != nil || !strings.HasPrefix(out, "s,") {
		t.Errorf("got %v; servers %q, %v", err, out, listErr)
	}
}

func TestADaemonKeepsItsProtocol(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.users <- me()
	if err := Control(t.Context(), w.options.PipeDirectory, strings.NewReader("get_server_list"), &strings.Builder{}); !errors.Is(err, errRefused) {
		t.Errorf("a command of protocol 2: %v", err)
	}
	legacy := newWorld(t, "t4", "0").start()
	if out, err := legacy.call("server", "list"); !errors.Is(err, errRefused) || !strings.Contains(out, "protocol 2") {
		t.Errorf("a command of protocol 3: %q, %v", out, err)
	}
}

func TestANamedServerThatIsKilledDisappears(t *testing.T) {
	w := newNamedWorld(t, "").start()
	w.calls("server create s --uid=0")
	c := w.connectThrough("s", me(), "", "")
	granted := c.attach(c.read())
	must(t, syscall.Kill(granted.Server, syscall.SIGKILL))
	if got := c.read(); errorOf(got) != errRPCFailure {
		t.Errorf("its client gets %+v", got)
	}
	w.eventually("it to disappear", func() bool {
		out, err := w.call("server", "list", "--format=csv,noheader")
		return err == nil && out == ""
	})
	if got := w.record().Servers[0]; got.Name != "s" || got.Status != ended || got.Clients[0].Namespace != defaultNamespace {
		t.Errorf("record %+v", got)
	}
}

func TestOptionsOfTheProgram(t *testing.T) {
	for name, tc := range map[string]struct {
		driver, args, env string
		want              func(Invocation) bool
		refused           bool
	}{
		"help of protocol 3":           {driver: "615.71.09", args: "-p 3 -h", want: func(c Invocation) bool { return c.Help && c.Options.Protocol == 3 }},
		"an older driver":              {driver: "610.10", args: "-p 3 -h", refused: true},
		"a daemon for several users":   {driver: "615.71.09", args: "-f -p 3 -m -a x.toml", want: func(c Invocation) bool { return c.Foreground && c.Options.MultiUser && c.Options.Apply == "x.toml" }},
		"a command":                    {driver: "615.71.09", args: "-p 3 server list --format=csv", want: func(c Invocation) bool { return strings.Join(c.Command, " ") == "server list --format=csv" }},
		"the environment wins":         {driver: "615.71.09", args: "-p 3 -f", env: "2", want: func(c Invocation) bool { return c.Options.Protocol == 2 }},
		"a protocol that is not there": {driver: "615.71.09", args: "-p 4 -f", refused: true},
		"an older driver for several":  {driver: "580.10", args: "-f -M", want: func(c Invocation) bool { return c.Foreground && c.Options.MultiUser }},
		"an older driver's commands":   {driver: "580.10", args: "", want: func(c Invocation) bool { return c.Command == nil }},
		"an older driver, a command":   {driver: "580.10", args: "server list", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CUDA_MPS_PROTOCOL_VERSION", tc.env)
			got, err := Parse(tc.driver, strings.Fields(tc.args))
			switch {
			case tc.refused && !errors.Is(err, simerr.ErrInvalid):
				t.Errorf("got %+v, %v, want an error", got, err)
			case !tc.refused && (err != nil || !tc.want(got)):
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if !strings.Contains(HelpText(protocolNamed), "namespace") || strings.Contains(HelpText(protocolLegacy), "namespace") {
		t.Error("only the help of protocol 3 lists namespaces")
	}
}
