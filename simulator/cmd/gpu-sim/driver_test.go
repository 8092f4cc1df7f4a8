// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// serveDriver runs gpu-sim driver in a separate process until the test ends.
func serveDriver(t *testing.T, state, model string) {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nvmlsim.Create(state, m); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "driver")
	c.Env = append(os.Environ(), "BE_GPU_SIM=1", "GPU_SIM_STATE="+state)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Wait(); err != nil && !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("gpu-sim driver: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if want := "serving " + state + "/run/nvidia-persistenced/socket\n"; err != nil || line != want {
		t.Fatalf("it printed %q, %v; want %q", line, err, want)
	}
}

// shortState is a folder for a node whose sockets have short paths.
func shortState(t *testing.T) string {
	t.Helper()
	state, err := os.MkdirTemp("", "g") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	return state
}
