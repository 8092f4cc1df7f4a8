// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// TestMain lets the test binary be the tool, so that tests run it in a separate
// process. Nodes that tests create have it as the programs of their driver.
func TestMain(m *testing.M) {
	if driverProgram() != "" || filepath.Base(os.Args[0]) == "gpu-sim" {
		main()
		return
	}
	// A developer may have set it for other programs.
	if err := os.Unsetenv("GPU_SIM_STATE"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// gpuSim runs the tool and returns its output.
func gpuSim(state string, args ...string) (stdout string, err error) {
	var out bytes.Buffer
	c := newCommand()
	c.SetOut(&out)
	c.SetArgs(append([]string{"--state", state}, args...))
	err = c.Execute()
	return out.String(), err
}

// ok runs the tool and fails the test if it fails.
func ok(t *testing.T, state string, args ...string) string {
	t.Helper()
	out, err := gpuSim(state, args...)
	if err != nil {
		t.Fatalf("gpu-sim %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func TestEveryCommandChangesWhatShowShows(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "a30-bridge")
	show := func() nvmlsim.View {
		t.Helper()
		var view nvmlsim.View
		must(t, json.Unmarshal([]byte(ok(t, state, "show", "-o", "json")), &view))
		return view
	}
	before := show()
	uuid := before.GPUs[2].UUID
	ok(t, state, "fault", "xid", "--gpu", "0", "--xid", "31")
	if _, err := gpuSim(state, "fault", "xid", "--mig", "MIG-none", "--xid", "31"); err == nil || !strings.Contains(err.Error(), "no GPU of this a30-bridge has it") {
		t.Errorf("XID of a MIG device that no GPU has: %v", err)
	}
	ok(t, state, "fault", "ecc", "--gpu", "0")
	ok(t, state, "fault", "call", "--method", "DeviceSetMigMode", "--gpu", "1", "--after", "2", "--count", "1", "--return", "ERROR_UNKNOWN")
	ok(t, state, "fault", "hang", "--gpu", "3")
	ok(t, state, "fault", "lost", "--gpu", "3", "--silent")
	ok(t, state, "fault", "recovery", "--gpu", "1", "--action", "node-reboot")
	ok(t, state, "fault", "link-down", "--gpu", uuid, "--link", "2")
	ok(t, state, "fault", "call", "--method", "DeviceGetCount", "--count", "3", "--return", "ERROR_TIMEOUT")
	ok(t, state, "fault", "call", "--method", "DeviceGetUUID", "--gpu", "1", "--hang", "5s")
	if _, err := gpuSim(state, "fault", "fabric", "--gpu", "0", "--registration", "in-progress"); err == nil || !strings.Contains(err.Error(), "it joins none") {
		t.Errorf("fabric of a GPU without one: %v", err)
	}
	ok(t, state, "process", "add", "--gpu", "0", "--pid", "5000007", "--memory", "100", "--name", "x")
	ok(t, state, "fault", "no-driver")
	view := show()
	got := map[string]any{
		"events": len(view.Events), "lost": view.GPUs[3].Lost, "recovery": []string{view.GPUs[0].Recovery, view.GPUs[1].Recovery}, "ecc": view.GPUs[0].ECCErrors, "links": []bool{view.GPUs[2].Links[2].Up, view.GPUs[3].Links[2].Up},
		"faults": view.CallFaults, "processes": view.GPUs[0].Processes, "driver": view.DriverLoaded,
	}
	want := map[string]any{
		"events": 9, "lost": true, "recovery": []string{"gpu-reset", "node-reboot"}, "ecc": uint64(1), "links": []bool{false, false},
		"faults": []string{
			"DeviceSetMigMode of GPU 1 returns ERROR_UNKNOWN, after 2 more calls, 1 more times", "every method of GPU 3 hangs until cleared",
			"DeviceGetCount returns ERROR_TIMEOUT, 3 more times", "DeviceGetUUID of GPU 1 hangs for 5s",
		},
		"processes": []nvmlsim.Process{{PID: 5000007, Name: "x", MemoryBytes: 100 << 20}}, "driver": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after all faults (-want +got):\n%s", diff)
	}
	if _, err := gpuSim(state, "reset", "--gpu", "0"); err == nil || !strings.Contains(err.Error(), "process 5000007 x") {
		t.Errorf("reset of a busy GPU: %v", err)
	}
	ok(t, state, "process", "remove", "--pid", "5000007")
	ok(t, state, "reset", "--gpu", "0")
	ok(t, state, "reboot")
	after := show()
	if after.BootID == before.BootID {
		t.Error("a reboot keeps the boot ID")
	}
	after.BootID = before.BootID
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a rebooted node differs from a new one (-new +rebooted):\n%s", diff)
	}
	var asYAML nvmlsim.View
	if err := yaml.UnmarshalStrict([]byte(ok(t, state, "show", "-o", "yaml")), &asYAML); err != nil {
		t.Error(err)
	}
	if out := ok(t, state, "show"); !strings.Contains(out, "a30-bridge with 4 GPUs") {
		t.Errorf("text:\n%s", out)
	}
	ok(t, state, "destroy")
	if _, err := gpuSim(state, "show"); err == nil || !strings.Contains(err.Error(), "no simulated node") {
		t.Errorf("show after destroy: %v", err)
	}
}

func TestCreateWithAWrongLibraryLeavesNothing(t *testing.T) {
	state, file := t.TempDir(), filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	must(t, os.WriteFile(file, []byte("no library"), 0o644))
	if _, err := gpuSim(state, "create", "--model", "t4", "--library", file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file of text: %v", err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestCreateIfMissingLeavesANodeOfTheSameModel(t *testing.T) {
	state := t.TempDir()
	create := func(model string) error {
		_, err := gpuSim(state, "create", "--model", model, "--if-missing")
		return err
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := create("t4"); err != nil {
				t.Errorf("one of several at a time: %v", err)
			}
		})
	}
	wait.Wait()
	before := ok(t, state, "show")
	installed := filepath.Join(state, "usr/bin/nvidia-smi")
	must(t, os.WriteFile(installed+".new", []byte("an older one"), 0o755))
	must(t, os.Rename(installed+".new", installed))
	if err := create("t4"); err != nil {
		t.Error(err)
	}
	if after := ok(t, state, "show"); after != before {
		t.Errorf("the node changed:\n%s\nafter\n%s", after, before)
	}
	if out, err := exec.CommandContext(t.Context(), installed, "-L").CombinedOutput(); err != nil || !strings.Contains(string(out), "Tesla T4") {
		t.Errorf("the program is not up to date: %s, %v", out, err)
	}
	if err := create("l40s"); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("another model: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(state, "wrong"), nil, 0o644))
	if _, err := gpuSim(state, "create", "--model", "t4", "--if-missing", "--library", filepath.Join(state, "wrong")); err == nil || ok(t, state, "show") != before {
		t.Errorf("a wrong library: %v, or the node is gone", err)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "t4")
	for _, tc := range []struct {
		state string
		args  []string
		want  string
	}{
		{"", []string{"show"}, "--state"},
		{"", []string{"create", "--model", "t4"}, "--state"},
		{t.TempDir(), []string{"show"}, "gpu-sim create"},
		{t.TempDir(), []string{"create", "--model", "t5"}, "built in are 1-h200, a30-bridge, dgx-a100"},
		{t.TempDir(), []string{"create"}, `required flag(s) "model" not set`},
		{state, []string{"create", "--model", "l40s"}, "it holds a simulated t4"},
		{state, []string{"fault", "lost", "--gpu", "9"}, "want an index below 4, a PCI address or a UUID"},
		{state, []string{"fault", "link-down", "--gpu", "0", "--link", "1"}, "it has 0 links"},
		{state, []string{"fault", "slow-clocks", "--gpu", "0", "--reason", "Tired"}, "want one of HwPowerBrakeSlowdown, "},
		{state, []string{"fault", "recovery", "--gpu", "0", "--action", "gpu-reset"}, "not supported before Ampere"},
		{state, []string{"fault", "recovery", "--gpu", "0", "--action", "kick"}, "want one of none, gpu-reset"},
		{state, []string{"fault", "call", "--method", "Nothing", "--hang", "1s"}, "no such method"},
		{state, []string{"fault", "call", "--method", "DeviceGetCount", "--return", "ERROR_ODD"}, "ERROR_TIMEOUT"},
		{state, []string{"fault", "call", "--method", "DeviceGetCount"}, "a return code or a time to hang"},
		{state, []string{"show", "-o", "xml"}, "none of text, json, yaml"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			_, err := gpuSim(tc.state, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheFabricOfAGPUIsSet(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "gb200")
	ok(t, state, "fault", "fabric", "--gpu", "0", "--registration", "in-progress")
	ok(t, state, "fault", "fabric", "--gpu", "1", "--clique", "7")
	var view nvmlsim.View
	must(t, json.Unmarshal([]byte(ok(t, state, "show", "-o", "json")), &view))
	got := []any{view.GPUs[0].Fabric, view.GPUs[0].Clique, view.GPUs[1].Fabric, *view.GPUs[1].Clique}
	if diff := cmp.Diff([]any{"in-progress", (*uint32)(nil), "completed", uint32(7)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := gpuSim(state, "fault", "fabric", "--gpu", "0"); err == nil {
		t.Error("no error without a registration and a clique")
	}
}

func TestAProcessOfTheMachineIsGoneWithItsPID(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "t4")
	process := exec.CommandContext(t.Context(), "sleep", "3600")
	must(t, process.Start())
	ok(t, state, "process", "add", "--gpu", "1", "--pid", fmt.Sprint(process.Process.Pid))
	if out := ok(t, state, "show"); !strings.Contains(out, "Processes") {
		t.Errorf("before its end:\n%s", out)
	}
	_ = process.Process.Kill()
	_ = process.Wait()
	if out := ok(t, state, "show"); strings.Contains(out, "Processes") {
		t.Errorf("after its end:\n%s", out)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
