// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// newNamespaceWorld is a world whose simulated driver has namespaces, and a daemon with
// two of them.
func newNamespaceWorld(t *testing.T) (*world, *nvmlsim.Sim, gpu.MPSDaemon) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a daemon for several users takes root")
	}
	w, sim := newSimWorldOf(t, "615.71.09")
	devices, err := sim.ComputeDevices()
	must(t, err)
	return w, sim, gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{devices[0].UUID}, Namespaces: []gpu.MPSNamespace{
		{Name: "one", ThreadPercentage: 25, MemoryLimit: 20 * gib}, {Name: "two", ThreadPercentage: 50},
	}}
}

// join connects a client through a folder and returns the grant. shm is its /dev/shm.
func join(t *testing.T, folder, shm string) mpssim.Granted {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(folder, "control"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	ask := func(r mpssim.Request) (reply mpssim.Reply) {
		if err := errors.Join(encoder.Encode(r), decoder.Decode(&reply)); err != nil || reply.Error != nil {
			t.Fatalf("%s: %v %v", r.Op, err, reply.Error)
		}
		return reply
	}
	token, err := os.ReadFile(filepath.Join(shm, ask(mpssim.Request{Op: "connect", ActiveThreadPercentage: "90"}).Shm))
	must(t, err)
	return *ask(mpssim.Request{Op: "attach", Token: string(token)}).Client
}

// limits are the limits of a client of each namespace of a daemon.
func limits(t *testing.T, dirs gpu.MPSDirs, names ...string) map[string]gpu.MPSNamespace {
	t.Helper()
	all := map[string]gpu.MPSNamespace{}
	for _, name := range names {
		got := join(t, filepath.Join(dirs.Pipe, name), dirs.Shm)
		all[name] = gpu.MPSNamespace{Name: name, ThreadPercentage: int(got.ActiveThreadPercentage), MemoryLimit: got.Devices[0].LimitBytes}
	}
	return all
}

func TestClientsOfANamespaceHaveItsLimitsWhenTheCallReturns(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.start()
	dirs := w.ensure(daemon)
	require.Same(t, "folders", gpu.MPSDirs{Pipe: w.options.RunDir + "/daemons/gpu-1b-00/pipe/s", Shm: "/dev/shm"}, dirs)
	want := map[string]gpu.MPSNamespace{
		"one": daemon.Namespaces[0], "two": daemon.Namespaces[1],
		// Nothing of ours uses it.
		"default": {Name: "default", ThreadPercentage: 1, MemoryLimit: 1 << 20},
	}
	require.Same(t, "limits", want, limits(t, dirs, "one", "two", "default"))
	s := w.daemon()
	require.Same(t, "daemon", daemon, s.Daemon)
	if s.State != gpu.MPSReady || len(s.Servers) != 1 || s.Servers[0].State != "Ready" || s.Servers[0].Clients != 1 {
		t.Errorf("status %+v, want one server with this process as its client", s)
	}
	if r := simRecord(t, w, "gpu-1b-00"); r.Protocol != 3 || !r.MultiUser || r.Servers[0].UID != 0 {
		t.Errorf("protocol %d, multi-user %t, server of user %d", r.Protocol, r.MultiUser, r.Servers[0].UID)
	}
}

// The output of the program can have other lines, on both of its outputs.
func TestOtherLinesInAListAreSkipped(t *testing.T) {
	w, sim, daemon := newNamespaceWorld(t)
	program := filepath.Join(sim.Root(), "usr/bin/nvidia-cuda-mps-control")
	real := filepath.Join(sim.Root(), "usr/libexec/nvidia-cuda-mps-control")
	script := "#!/bin/sh\necho 'Notice: a new release is there' >&2\nexec '" + real + "' \"$@\"\n"
	must(t, errors.Join(os.Mkdir(filepath.Dir(real), 0o755), os.Rename(program, real), os.WriteFile(program, []byte(script), 0o755)))
	w.start()
	w.ensure(daemon)
	if s := w.daemon(); s.State != gpu.MPSReady || len(s.Servers) != 1 || s.Servers[0].Clients != 0 {
		t.Errorf("status %+v, want it ready with one server", s)
	}
}

// With separate file systems and a separate /dev/shm, as on a node.
func TestADaemonWithMountsHasNamespaces(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.options.HostShm, w.options.ShmSize = false, shmSize
	w.start()
	dirs := w.ensure(daemon)
	want := map[string]gpu.MPSNamespace{"one": daemon.Namespaces[0]}
	require.Same(t, "limits", want, limits(t, dirs, "one"))
	pid := w.daemon().PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	w.until("it is restarted", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != pid })
	require.Same(t, "limits after a restart", want, limits(t, dirs, "one"))
}

func TestNamespacesComeAndGoOnARunningDaemon(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.start()
	dirs := w.ensure(daemon)
	pid := w.daemon().PID
	daemon.Namespaces = []gpu.MPSNamespace{{Name: "three", ThreadPercentage: 10}, {Name: "two", ThreadPercentage: 40, MemoryLimit: gib}}
	w.ensure(daemon)
	want := map[string]gpu.MPSNamespace{"three": daemon.Namespaces[0], "two": daemon.Namespaces[1]}
	require.Same(t, "limits", want, limits(t, dirs, "two", "three"))
	require.Error(t, "the folder of a namespace that is no longer wanted", errOf(os.Stat(filepath.Join(dirs.Pipe, "one"))), os.ErrNotExist)
	if got := w.daemon().PID; got != pid {
		t.Errorf("PID %d, want the same as before, %d", got, pid)
	}
	// The same again sends no command: the daemon could not answer it.
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	w.ensure(daemon)
	must(t, syscall.Kill(pid, syscall.SIGCONT))
}

func TestADaemonThatDiesComesBackWithItsNamespacesInTheSameFolders(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.start()
	dirs := w.ensure(daemon)
	folder := filepath.Join(dirs.Pipe, "one")
	before, err := os.Stat(folder)
	must(t, err)
	// A container that runs as root can create files.
	must(t, os.MkdirAll(filepath.Join(folder, "deep/folder"), 0o755))
	pid := w.daemon().PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	w.until("it is restarted", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != pid })
	after, err := os.Stat(folder)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("containers have another folder than the daemon: %v", err)
	}
	require.Error(t, "files of a container are left", errOf(os.Stat(filepath.Join(folder, "deep"))), os.ErrNotExist)
	want := map[string]gpu.MPSNamespace{"one": daemon.Namespaces[0], "two": daemon.Namespaces[1]}
	require.Same(t, "limits", want, limits(t, dirs, "one", "two"))
}

// A container is created with the folder of its namespace, and none starts without it.
func TestADaemonWithoutItsServerOrAFolderIsRestarted(t *testing.T) {
	for name, remove := range map[string]func(gpu.MPSDirs, gpu.MPSStatus) error{
		"the server": func(_ gpu.MPSDirs, s gpu.MPSStatus) error { return syscall.Kill(s.Servers[0].PID, syscall.SIGKILL) },
		"a folder":   func(dirs gpu.MPSDirs, _ gpu.MPSStatus) error { return os.RemoveAll(filepath.Join(dirs.Pipe, "one")) },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, daemon := newNamespaceWorld(t)
			w.options.AnswerAge = time.Nanosecond
			w.start()
			dirs := w.ensure(daemon)
			before := w.daemon()
			must(t, remove(dirs, before))
			w.until("it is noticed and restarted", func() bool {
				_, err := w.client.EnsureMPS(t.Context(), daemon)
				return err == nil && w.daemon().PID != before.PID
			})
			limits(t, dirs, "one")
		})
	}
}

func TestTheNextSupervisorAdoptsADaemonWithItsNamespaces(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.start()
	dirs := w.ensure(daemon)
	before := w.daemon()
	w.stop()
	// A namespace that the last supervisor did not come to remove.
	var out strings.Builder
	must(t, mpssim.Control(t.Context(), filepath.Dir(dirs.Pipe), strings.NewReader(""), &out, "namespace", "create", "stray", "--server=s"))
	w.start()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	require.Same(t, "daemon", before, w.daemon())
	require.Error(t, "the folder of an unknown namespace", errOf(os.Stat(filepath.Join(dirs.Pipe, "stray"))), os.ErrNotExist)
}

func TestADaemonKeepsItsProtocolUntilItIsStopped(t *testing.T) {
	w, _, named := newNamespaceWorld(t)
	w.start()
	legacy := gpu.MPSDaemon{Name: named.Name, Devices: named.Devices, ThreadPercentage: 25}
	for _, tc := range []struct{ runs, refused gpu.MPSDaemon }{{legacy, named}, {named, legacy}} {
		w.ensure(tc.runs)
		pid := w.daemon().PID
		require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), tc.refused)), gpu.ErrInUse, "protocol")
		if s := w.daemon(); s.PID != pid || s.State != gpu.MPSReady || !cmp.Equal(s.Daemon, tc.runs) {
			t.Errorf("the running daemon has changed: %+v", s)
		}
		must(t, w.client.StopMPS(t.Context(), named.Name))
	}
}

// A daemon that an earlier supervisor has started with protocol 2 keeps it, although the
// driver has namespaces.
func TestAnAdoptedDaemonKeepsItsProtocol(t *testing.T) {
	w, _, named := newNamespaceWorld(t)
	w.start()
	w.ensure(gpu.MPSDaemon{Name: named.Name, Devices: named.Devices, ThreadPercentage: 25})
	before := w.daemon()
	w.restart()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	require.Same(t, "daemon", before, w.daemon())
	// A record of the other protocol does not make it another daemon.
	w.stop()
	path := filepath.Join(w.options.RunDir, "daemons/gpu-1b-00/daemon.json")
	data, err := json.Marshal(map[string]any{"daemon": named})
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
	w.start()
	w.until("the contradiction is reported", func() bool {
		s := w.daemon()
		return s.State == gpu.MPSFailed && strings.Contains(s.Problem, "another protocol")
	})
	if err := syscall.Kill(before.PID, 0); err != nil {
		t.Errorf("the daemon has ended: %v", err)
	}
}

func TestADriverWithoutNamespacesIsReported(t *testing.T) {
	for driver, want := range map[string]bool{"615.71.09": true, "620.1": true, "610.99": false} {
		t.Run(driver, func(t *testing.T) {
			_, _, daemon := newNamespaceWorld(t)
			w, _ := newSimWorldOf(t, driver)
			w.start()
			if got, err := w.client.Namespaces(t.Context()); err != nil || got != want {
				t.Errorf("namespaces: %t, %v, want %t", got, err, want)
			}
			if want {
				return
			}
			_, err := w.client.EnsureMPS(t.Context(), daemon)
			require.Error(t, "error", err, gpu.ErrNotSupported, "driver of release 615")
			if got := w.left(); got != nil {
				t.Errorf("folders %q are left, want none", got)
			}
		})
	}
}

// The program is run once for each driver, and again when the driver is replaced.
func TestAnotherDriverIsProbedAgain(t *testing.T) {
	w, sim, _ := newNamespaceWorld(t)
	w.start()
	program := filepath.Join(sim.Root(), "usr/bin/nvidia-cuda-mps-control")
	replace := func(help string) {
		t.Helper()
		script := "#!/bin/sh\necho run >>" + w.dir + "/runs\necho '" + help + "'\n"
		must(t, errors.Join(os.WriteFile(program+".new", []byte(script), 0o755), os.Rename(program+".new", program)))
	}
	for _, tc := range []struct {
		help string
		want bool
	}{{"modules: server, namespace", true}, {"usage: [-d | -f]", false}} {
		replace(tc.help)
		for range 3 {
			if got, err := w.client.Namespaces(t.Context()); err != nil || got != tc.want {
				t.Errorf("%s: %t, %v, want %t", tc.help, got, err, tc.want)
			}
		}
	}
	runs, err := os.ReadFile(filepath.Join(w.dir, "runs"))
	if err != nil || strings.Count(string(runs), "run") != 2 {
		t.Errorf("the program has run %d times (%v), want twice", strings.Count(string(runs), "run"), err)
	}
	must(t, os.Remove(program))
	if _, err := w.client.Namespaces(t.Context()); err == nil {
		t.Error("a driver without the program is described")
	}
}

func TestAServerThatDisappearsIsAnErrorAndLeavesNothing(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.options.StartTimeout = 2 * time.Second
	w.start()
	daemon.Devices = []string{"GPU-00000000-52e5-5844-818c-adb25db0b582"}
	_, err := w.client.EnsureMPS(t.Context(), daemon)
	if err == nil || !strings.Contains(err.Error(), "no CUDA-capable device is detected") {
		t.Errorf("error %v, want one that quotes the server's log", err)
	}
	if got := w.left(); got != nil {
		t.Errorf("folders %q are left, want none", got)
	}
}

func TestNamespacesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.start()
	fine := gpu.MPSNamespace{Name: "one", ThreadPercentage: 10}
	for name, d := range map[string]gpu.MPSDaemon{
		"a dash in the name":          {Namespaces: []gpu.MPSNamespace{{Name: "a-b", ThreadPercentage: 10}}},
		"a path for a name":           {Namespaces: []gpu.MPSNamespace{{Name: "../x", ThreadPercentage: 10}}},
		"a name of 65 letters":        {Namespaces: []gpu.MPSNamespace{{Name: strings.Repeat("a", 65), ThreadPercentage: 10}}},
		"the default namespace":       {Namespaces: []gpu.MPSNamespace{{Name: "default", ThreadPercentage: 10}}},
		"one name twice":              {Namespaces: []gpu.MPSNamespace{fine, fine}},
		"no threads":                  {Namespaces: []gpu.MPSNamespace{{Name: "one"}}},
		"too many threads":            {Namespaces: []gpu.MPSNamespace{{Name: "one", ThreadPercentage: 101}}},
		"a limit of half a mebibyte":  {Namespaces: []gpu.MPSNamespace{{Name: "one", ThreadPercentage: 10, MemoryLimit: 1 << 19}}},
		"a ceiling of the daemon too": {Namespaces: []gpu.MPSNamespace{fine}, ThreadPercentage: 10},
		"a MIG device":                {Namespaces: []gpu.MPSNamespace{fine}, Devices: []string{"MIG-5d32c26d-913c-5913-8d54-b1d8c2a31c3d"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.Name = "gpu-1a-00"
			if d.Devices == nil {
				d.Devices = []string{uuidA}
			}
			require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), d)), gpu.ErrInvalid)
		})
	}
}

func TestAPathOfANamespaceThatIsTooLongForASocketIsRefused(t *testing.T) {
	w, _, daemon := newNamespaceWorld(t)
	w.start()
	daemon.Namespaces = []gpu.MPSNamespace{{Name: strings.Repeat("a", 64), ThreadPercentage: 10}}
	require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), daemon)), gpu.ErrInvalid, "--run-dir")
}
