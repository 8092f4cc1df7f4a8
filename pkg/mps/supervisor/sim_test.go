// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// simulatedRoot returns the root of the simulated node that has this program, or "".
func simulatedRoot() string {
	root := filepath.Join(filepath.Dir(os.Args[0]), "../..")
	if _, err := os.Stat(filepath.Join(root, "var/lib/gpu-sim/state.json")); err != nil {
		return ""
	}
	return root
}

// playSimulator makes the test binary the nvidia-cuda-mps-control of a simulated node.
func playSimulator(root string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := playControlOf(ctx, root, os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func playControlOf(ctx context.Context, root string, args []string) error {
	sim, err := nvmlsim.Open(root)
	if err != nil {
		return err
	}
	call, err := mpssim.Parse(sim.Model().DriverVersion, args)
	switch {
	case err != nil:
		return err
	case call.Help:
		fmt.Print(mpssim.HelpText(call.Options.Protocol))
		return nil
	case call.Foreground:
		call.Options.Log = os.Stderr
		return mpssim.Run(ctx, sim, call.Options, func() {})
	default:
		return mpssim.Control(ctx, call.Options.PipeDirectory, os.Stdin, os.Stdout, call.Command...)
	}
}

// newSimWorld is a world whose nvidia-cuda-mps-control is the simulator's.
func newSimWorld(t *testing.T) (*world, *nvmlsim.Sim) {
	t.Helper()
	return newSimWorldOf(t, "")
}

// newSimWorldOf is newSimWorld with a version of the driver.
func newSimWorldOf(t *testing.T, driver string) (*world, *nvmlsim.Sim) {
	t.Helper()
	w := newWorld(t)
	model, err := nvmlsim.LoadModel("dgx-h100")
	must(t, err)
	model.DriverVersion = cmp.Or(driver, model.DriverVersion)
	sim, err := nvmlsim.Create(filepath.Join(w.dir, "sim"), model)
	must(t, err)
	program := filepath.Join(sim.Root(), "usr/bin/nvidia-cuda-mps-control")
	must(t, os.Remove(program))
	supervisor.Play(t, program)
	w.options.Driver = gpu.DriverRoot(sim.Root())
	return w, sim
}

func simRecord(t *testing.T, w *world, name string) mpssim.Record {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.options.LogDir, name, mpssim.RecordName))
	must(t, err)
	var r mpssim.Record
	must(t, json.Unmarshal(data, &r))
	return r
}

// The simulated daemon is a script that runs another program: its own name is a word of
// the command line.
func TestTheSimulatedDaemonIsKnownToTheNextSupervisor(t *testing.T) {
	w, sim := newSimWorld(t)
	devices, err := sim.ComputeDevices()
	must(t, err)
	w.start()
	dirs := w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{devices[0].UUID}})
	var output bytes.Buffer
	if err := mpssim.Control(t.Context(), dirs.Pipe, strings.NewReader(fmt.Sprintf("start_server -uid %d\n", os.Getuid())), &output); err != nil || output.Len() > 0 {
		t.Fatalf("start a server: %v %q", err, &output)
	}
	before := w.daemon()
	w.restart()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	if diff := gocmp.Diff(before, w.daemon()); diff != "" {
		t.Errorf("daemon (-before +after):\n%s", diff)
	}
}

// A program that uses the GPU through a server that ends fails at its next call.
func TestTheEndOfAServerOrDaemonIsAnInterruption(t *testing.T) {
	w, sim := newSimWorld(t)
	devices, err := sim.ComputeDevices()
	must(t, err)
	start := time.Now().UTC().Truncate(time.Second)
	clock := clocktesting.NewFakeClock(start)
	w.options.Clock = clock
	w.start()
	dirs := w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{devices[0].UUID}})
	startServer := func() int {
		t.Helper()
		must(t, mpssim.Control(t.Context(), dirs.Pipe, strings.NewReader(fmt.Sprintf("start_server -uid %d\n", os.Getuid())), io.Discard))
		return w.daemon().Servers[0].PID
	}
	states := func() gpu.MPSStatus {
		t.Helper()
		all, err := w.client.MPSStates(t.Context())
		if err != nil || len(all) != 1 || all[0].Servers != nil {
			t.Fatalf("%+v, %v; want one daemon, without servers", all, err)
		}
		return all[0]
	}
	server := startServer()
	if at := states().Interrupted; !at.IsZero() {
		t.Errorf("interrupted at %s, and nothing has ended", at)
	}
	clock.Step(time.Minute)
	must(t, syscall.Kill(server, syscall.SIGKILL))
	w.until("the end of the server is noticed", func() bool { return states().Interrupted.Equal(start.Add(time.Minute)) })
	clock.Step(time.Minute)
	w.replaceDaemon()
	if at := states().Interrupted; !at.Equal(start.Add(2 * time.Minute)) {
		t.Errorf("interrupted at %s, want the end of the daemon", at)
	}
	clock.Step(time.Minute)
	w.restart()
	w.until("it is adopted", func() bool { return states().State == gpu.MPSReady })
	if at := states().Interrupted; !at.Equal(start.Add(2 * time.Minute)) {
		t.Errorf("the next supervisor says that it was interrupted at %s", at)
	}
}
