// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program runs the driver's own program with arguments, also when the test ends.
func program(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root, "usr/bin", "nvidia-cuda-mps-control"), args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestAPodsProbeIsHeldToItsNamespace(t *testing.T) {
	state, root := driver(t, "dgx-h100-r615")
	probe := buildProbe(t)
	if out, err := program(t, root, "-p", "3", "-h"); err != nil || !strings.Contains(out, "namespace") {
		t.Errorf("help: %q, %v", out, err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	if out, err := program(t, root, "-d", "-p", "3", "-m"); err != nil {
		t.Fatal(out, err)
	}
	t.Cleanup(func() {
		if out, err := program(t, root, "-p", "3", "-q"); err != nil {
			t.Error(out, err)
		}
	})
	// The program follows the daemon, whatever it is started with.
	for _, command := range []string{
		"-p 3 server create s --uid=0 --allowed-devices=0", "-p 2 namespace create a --server=s", "namespace set a --server=s --active-thread-percentage=25 --pinned-memory-limit=4G",
	} {
		if out, err := program(t, root, strings.Fields(command)...); err != nil || out != "" {
			t.Fatalf("%s: %q, %v", command, out, err)
		}
	}
	pipe := filepath.Join(state, "pipe")
	// It drops or raises the limits of its environment.
	for _, env := range [][]string{nil, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40G"}} {
		env = append(env, "CUDA_MPS_PIPE_DIRECTORY="+pipe+"/s/a")
		got, err := runProbe(t, probe, env, "--memory", "3Gi")
		if err != nil || !got.MPS || got.Client.ActiveThreadPercentage != 25 || got.Client.Devices[0].LimitBytes != 4<<30 {
			t.Errorf("%q: %+v, %v", env, got, err)
		}
		if got, err := runProbe(t, probe, env, "--memory", "5Gi"); err == nil || got.Error.Name != "OUT_OF_MEMORY" {
			t.Errorf("%q, beyond its share: %+v, %v", env, got, err)
		}
	}
	text := ok(t, state, "mps")
	for _, want := range []string{"namespace s/a: 25.00 % of threads, 4G of a device", "namespace s/default"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
