// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAProcessIsFoundInItsCgroup(t *testing.T) {
	parent := cgrouptest.New(t)
	child := cgrouptest.Child(t, parent, "child")
	pid := cgrouptest.Process(t, child)
	if got, err := cgroup.OfProcess(pid); err != nil || got != child {
		t.Errorf("process %d: %s, %v; want %s", pid, got, err, child)
	}
}

func TestACgroupThatIsMadeAnewHasAnotherID(t *testing.T) {
	folder := cgrouptest.New(t)
	before, err := cgroup.Lookup(folder)
	must(t, err)
	must(t, os.Remove(folder))
	if _, err := cgroup.Lookup(folder); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a cgroup that is gone: %v, want %v", err, gpu.ErrNotFound)
	}
	must(t, os.Mkdir(folder, 0o755))
	if after, err := cgroup.Lookup(folder); err != nil || after == before {
		t.Errorf("ID %d before and %d after, %v", before, after, err)
	}
}

func TestOtherFoldersAreRefused(t *testing.T) {
	if _, err := cgroup.Lookup(t.TempDir()); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("a folder on a disk: %v, want %v", err, gpu.ErrNotSupported)
	}
	if _, err := cgroup.Lookup(filepath.Join(cgrouptest.New(t), "cgroup.procs")); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a file of a cgroup: %v, want %v", err, gpu.ErrInvalid)
	}
}

func TestAProcessThatDoesNotExist(t *testing.T) {
	if _, err := cgroup.Root(); err != nil {
		t.Skip(err)
	}
	if _, err := cgroup.OfProcess(1 << 30); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("%v, want %v", err, gpu.ErrNotFound)
	}
}

func TestAProcessOfACgroupMayBeInOneBelowIt(t *testing.T) {
	parent := cgrouptest.New(t)
	if pid, err := cgroup.Process(parent); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("of an empty cgroup: %d, %v; want %v", pid, err, gpu.ErrNotFound)
	}
	cgrouptest.Child(t, parent, "empty")
	child := cgrouptest.Child(t, cgrouptest.Child(t, parent, "container"), "below")
	want := cgrouptest.Process(t, child)
	for _, folder := range []string{parent, child} {
		if pid, err := cgroup.Process(folder); err != nil || pid != want {
			t.Errorf("of %s: %d, %v; want %d", folder, pid, err, want)
		}
	}
	if pid, err := cgroup.Process(filepath.Join(parent, "none")); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("of a cgroup that does not exist: %d, %v; want %v", pid, err, gpu.ErrNotFound)
	}
}

var must = require.NoError
