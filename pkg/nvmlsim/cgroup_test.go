// SPDX-License-Identifier: Apache-2.0

package nvmlsim_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// cgroupRoot returns the root of the cgroups of version 2, or skips the test.
func cgroupRoot(t *testing.T) string {
	t.Helper()
	return filepath.Dir(cgrouptest.New(t))
}

func TestAProcessGetsACgroupOfItsOwn(t *testing.T) {
	root := cgroupRoot(t)
	// A cgroup that an earlier container has left.
	left := filepath.Join(root, "gpu-sim", "left-over-of-a-test")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	pid := cgrouptest.Process(t, root)
	folder, err := nvmlsim.PlaceInOwnCgroup(pid, "container-of-a-test")
	if want := filepath.Join(root, "gpu-sim", "container-of-a-test"); err != nil || folder != want {
		t.Fatalf("folder %s, %v; want %s", folder, err, want)
	}
	if got, err := cgroup.OfProcess(pid); err != nil || got != folder {
		t.Errorf("the process is in %s, %v; want %s", got, err, folder)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty cgroup %s: %v, want that it is removed", left, err)
	}
	before, err := cgroup.Lookup(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"container-of-a-test", "another-name"} {
		if got, err := nvmlsim.PlaceInOwnCgroup(pid, name); err != nil || got != folder {
			t.Errorf("once more as %s: %s, %v; want %s", name, got, err, folder)
		}
	}
	if after, err := cgroup.Lookup(folder); err != nil || after != before {
		t.Errorf("the cgroup %d became %d, %v", before, after, err)
	}
	// cgrouptest ends the process before it removes the folder.
	t.Run("a second process leaves the first where it is", func(t *testing.T) {
		second := cgrouptest.Process(t, root)
		if _, err := nvmlsim.PlaceInOwnCgroup(second, "second-of-a-test"); err != nil {
			t.Fatal(err)
		}
		if got, err := cgroup.OfProcess(pid); err != nil || got != folder {
			t.Errorf("the first process is in %s, %v; want %s", got, err, folder)
		}
	})
}

func TestAProcessInACgroupStaysThere(t *testing.T) {
	group := cgrouptest.New(t)
	pid := cgrouptest.Process(t, group)
	if got, err := nvmlsim.PlaceInOwnCgroup(pid, "container-of-a-test"); err != nil || got != group {
		t.Errorf("folder %s, %v; want %s", got, err, group)
	}
	if got, err := cgroup.OfProcess(pid); err != nil || got != group {
		t.Errorf("the process is in %s, %v; want %s", got, err, group)
	}
}

func TestProcessesThatCannotBePlaced(t *testing.T) {
	root := cgroupRoot(t)
	if _, err := nvmlsim.PlaceInOwnCgroup(1<<30, "container-of-a-test"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a process that does not exist: %v, want %v", err, gpu.ErrNotFound)
	}
	pid := cgrouptest.Process(t, root)
	for _, name := range []string{"", ".", "..", "/", "a/b", "../container"} {
		if _, err := nvmlsim.PlaceInOwnCgroup(pid, name); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("the name %q: %v, want %v", name, err, gpu.ErrInvalid)
		}
	}
}
