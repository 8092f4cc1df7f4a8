// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
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
	_, err = cgroup.Lookup(folder)
	require.Error(t, "a cgroup that is gone", err, gpu.ErrNotFound)
	must(t, os.Mkdir(folder, 0o755))
	if after, err := cgroup.Lookup(folder); err != nil || after == before {
		t.Errorf("ID %d before and %d after, %v", before, after, err)
	}
}

func TestOtherFoldersAreRefused(t *testing.T) {
	_, err := cgroup.Lookup(t.TempDir())
	require.Error(t, "a folder on a disk", err, gpu.ErrNotSupported)
	_, err = cgroup.Lookup(filepath.Join(cgrouptest.New(t), "cgroup.procs"))
	require.Error(t, "a file of a cgroup", err, gpu.ErrInvalid)
}

func TestAProcessThatDoesNotExist(t *testing.T) {
	if _, err := cgroup.Root(); err != nil {
		t.Skip(err)
	}
	_, err := cgroup.OfProcess(1 << 30)
	require.Error(t, "OfProcess", err, gpu.ErrNotFound)
}

func TestAProcessOfACgroupMayBeInOneBelowIt(t *testing.T) {
	parent := cgrouptest.New(t)
	_, err := cgroup.Process(parent)
	require.Error(t, "of an empty cgroup", err, gpu.ErrNotFound)
	cgrouptest.Child(t, parent, "empty")
	child := cgrouptest.Child(t, cgrouptest.Child(t, parent, "container"), "below")
	want := cgrouptest.Process(t, child)
	for _, folder := range []string{parent, child} {
		if pid, err := cgroup.Process(folder); err != nil || pid != want {
			t.Errorf("of %s: %d, %v; want %d", folder, pid, err, want)
		}
	}
	_, err = cgroup.Process(filepath.Join(parent, "none"))
	require.Error(t, "of a cgroup that does not exist", err, gpu.ErrNotFound)
}

var must = require.NoError
