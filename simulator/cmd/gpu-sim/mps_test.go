// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// driver is the driver of a simulated node: its programs are this test binary.
func driver(t *testing.T, model string) (state, root string) {
	t.Helper()
	// With -race every process would wait a second before it ends.
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	dir := shortState(t)
	ok(t, dir, "create", "--model", model)
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", filepath.Join(dir, "pipe"))
	t.Setenv("CUDA_MPS_LOG_DIRECTORY", filepath.Join(dir, "log"))
	return dir, dir
}

// shortState is a folder for a node whose sockets have short paths.
func shortState(t *testing.T) string {
	t.Helper()
	state, err := os.MkdirTemp("", "g") //nolint:usetesting // t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	return state
}

// startMPS starts the daemon as a supervisor does, and returns a function that waits
// for its end.
func startMPS(t *testing.T, root string, env ...string) (wait func() error) {
	t.Helper()
	daemon := exec.Command(filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control"), "-f")
	daemon.Env = append(os.Environ(), env...)
	log, err := daemon.StderrPipe()
	must(t, err)
	must(t, daemon.Start())
	var status error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, log)
		status = daemon.Wait()
	}()
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		<-ended
	})
	until(t, "the daemon to answer", func() bool {
		_, err := command(t, root, "get_server_list")
		return err == nil
	})
	return func() error {
		<-ended
		return status
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no sign of %s", what)
		}
	}
}

// command sends commands to the daemon with the driver's own program.
func command(t *testing.T, root string, commands string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control"))
	c.Stdin = strings.NewReader(commands + "\n")
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func daemons(t *testing.T, state string) []mpssim.Listed {
	t.Helper()
	var all []mpssim.Listed
	must(t, json.Unmarshal([]byte(ok(t, state, "mps", "-o", "json")), &all))
	return all
}

// buildProbe builds what the pods of end-to-end tests run.
func buildProbe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../probe")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
	return path
}

type probeReport struct {
	MPS    bool
	Plain  string
	Client struct {
		ActiveThreadPercentage float64
		Devices                []struct{ LimitBytes uint64 }
	}
	AllocatedBytes uint64
	Error          struct{ Name, Message string }
}

func runProbe(t *testing.T, probe string, env []string, args ...string) (probeReport, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), probe, append([]string{"cuda", "--once"}, args...)...)
	c.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	var report probeReport
	if jsonErr := json.Unmarshal(out.Bytes(), &report); jsonErr != nil {
		t.Fatalf("%v, %v: %s", err, jsonErr, out.Bytes())
	}
	return report, err
}

func TestAPodsProbeIsHeldToItsShare(t *testing.T) {
	state, root := driver(t, "t4")
	probe := buildProbe(t)
	share := []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M"}
	if got, err := runProbe(t, probe, share); err != nil || got.MPS {
		t.Errorf("without a daemon: %+v, %v", got, err)
	}
	startMPS(t, root, "CUDA_VISIBLE_DEVICES=0")
	if out, err := command(t, root, "set_default_active_thread_percentage 50"); err != nil || out != "50.0" {
		t.Errorf("got %q, %v", out, err)
	}
	got, err := runProbe(t, probe, share, "--memory", "3Gi")
	if err != nil || !got.MPS || got.Client.ActiveThreadPercentage != 25 || got.Client.Devices[0].LimitBytes != 4<<30 || got.AllocatedBytes != 3<<30 {
		t.Errorf("within its share: %+v, %v", got, err)
	}
	if got, err := runProbe(t, probe, share, "--memory", "5Gi"); err == nil || got.Error.Name != "OUT_OF_MEMORY" {
		t.Errorf("beyond its share: %+v, %v", got, err)
	}
	if got, err := runProbe(t, probe, nil); err != nil || got.Client.ActiveThreadPercentage != 50 {
		t.Errorf("without the variables: %+v, %v", got, err)
	}
	listed := daemons(t, state)
	record := listed[0].Record
	if clients := record.Servers[0].Clients; len(clients) != 3 || clients[0].AskedMemoryLimit != "0=4096M" || clients[0].Devices[0].PeakBytes != 3<<30 {
		t.Errorf("record %+v", clients)
	}
	text := ok(t, state, "mps")
	for _, want := range []string{"runs as process", "ACTIVE", "4096", "3072"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	// As a server of protocol 3.
	record.Servers[0].Name, record.Servers[0].Namespaces = "s", []mpssim.NamespaceRecord{{Name: "a", ActiveThreadPercentage: 25, PinnedMemoryLimit: 4 << 30}}
	var named strings.Builder
	if err := mpssim.WriteText(&named, listed); err != nil || !strings.Contains(named.String(), "namespace s/a: 25.00 % of threads, 4G of a device") {
		t.Errorf("%v, the namespace is missing in\n%s", err, named.String())
	}
}

func TestADaemonDies(t *testing.T) {
	state, root := driver(t, "t4")
	wait := startMPS(t, root, "CUDA_VISIBLE_DEVICES=0")
	if out, err := command(t, root, "start_server -uid 0"); err != nil || out != "" {
		t.Fatal(out, err)
	}
	if !strings.Contains(ok(t, state, "show"), nvmlsim.MPSServerName) {
		t.Error("the server is not among the processes of the GPU")
	}
	server := daemons(t, state)[0].Record.Servers[0].PID
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", server)); err != nil || string(comm) != nvmlsim.MPSServerName[:15]+"\n" {
		t.Errorf("the kernel reports the server as %q, %v", comm, err)
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server)); err != nil || exe != filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control") {
		t.Errorf("the server runs %q, %v, and containers have no other program", exe, err)
	}
	ok(t, state, "fault", "mps", "die")
	if err := wait(); err == nil {
		t.Error("it ended well")
	}
	if strings.Contains(ok(t, state, "show"), nvmlsim.MPSServerName) {
		t.Error("the server of a dead daemon is still there")
	}
	if out, err := command(t, root, "get_server_list"); err == nil || !strings.Contains(out, "Cannot find MPS control daemon process") {
		t.Errorf("got %q, %v", out, err)
	}
	if daemons(t, state)[0].Running {
		t.Error("it is listed as running")
	}
	until(t, "the end of the server's file", func() bool {
		_, err := os.Stat(fmt.Sprintf("/dev/shm/cuda.mps.%d", server))
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := gpuSim(state, "fault", "mps", "die"); err == nil {
		t.Error("it died twice")
	}
	// Its leftovers do not keep another from its place.
	startMPS(t, root)
}

func TestADaemonHangsUntilFaultsAreCleared(t *testing.T) {
	state, root := driver(t, "t4")
	startMPS(t, root)
	ok(t, state, "fault", "mps", "hang")
	until(t, "the daemon to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", daemons(t, state)[0].PID))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	pipe := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if err := mpssim.Control(ctx, pipe, strings.NewReader("get_server_list"), io.Discard); err == nil || ctx.Err() == nil {
		t.Errorf("it answers, or fails at once: %v", err)
	}
	ok(t, state, "fault", "clear")
	if err := mpssim.Control(t.Context(), pipe, strings.NewReader("get_server_list"), io.Discard); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestADaemonDoesNotComeUp(t *testing.T) {
	state, root := driver(t, "t4")
	ok(t, state, "fault", "mps", "start", "--count", "1")
	if !strings.Contains(ok(t, state, "show"), "MPS daemons do not come up") {
		t.Error("show does not tell")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control"), "-f").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "simulated fault") {
		t.Errorf("got %s, %v", out, err)
	}
	// In the background, as by hand.
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control"), "-d").CombinedOutput(); err != nil {
		t.Errorf("got %s, %v", out, err)
	}
	if out, err := command(t, root, "quit"); err != nil {
		t.Errorf("got %s, %v", out, err)
	}
	until(t, "the daemon's end", func() bool { return !daemons(t, state)[0].Running })
}

func TestNvidiaSMIHangsInAGPUThatHangs(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "t4")
	ok(t, state, "fault", "hang", "--gpu", "1")
	if out := ok(t, state, "nvidia-smi", "compute-policy", "--list", "-i", "0"); !strings.Contains(out, "Timeslice") {
		t.Errorf("another GPU:\n%s", out)
	}
	done := make(chan error, 1)
	go func() {
		_, err := gpuSim(state, "nvidia-smi", "compute-policy", "--list", "-i", "1")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("it did not hang: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ok(t, state, "fault", "clear")
	if err := <-done; err != nil {
		t.Error(err)
	}
}
