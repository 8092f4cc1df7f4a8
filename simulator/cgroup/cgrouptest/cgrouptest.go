// SPDX-License-Identifier: Apache-2.0

// Package cgrouptest creates cgroups of version 2 for tests.
package cgrouptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// New creates a cgroup, removes it when the test ends, and returns its folder. It skips
// the test on a machine without cgroups of version 2, and for users without permission.
func New(t testing.TB) string {
	t.Helper()
	root, err := cgroup.Root()
	if errors.Is(err, simerr.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp(root, "cgrouptest-") //nolint:usetesting // a cgroup, not a folder on a disk
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("only root can make cgroups: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, folder) })
	return folder
}

// Child creates a cgroup below another one.
func Child(t testing.TB, folder, name string) string {
	t.Helper()
	child := filepath.Join(folder, name)
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, child) })
	return child
}

func remove(t testing.TB, folder string) {
	if err := os.Remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Process starts a process in the cgroup, until the test ends, and returns its PID.
func Process(t testing.TB, folder string) int {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	process := exec.CommandContext(ctx, "sleep", "infinity")
	if err := process.Start(); err != nil {
		end()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		_ = process.Wait() // it was killed
	})
	pid := process.Process.Pid
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), fmt.Append(nil, pid), 0o600); err != nil {
		t.Fatal(err)
	}
	return pid
}
