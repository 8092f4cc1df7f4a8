// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestAProcessIsInItsCgroupAndInThoseAbove(t *testing.T) {
	parent := cgrouptest.New(t)
	child := cgrouptest.Child(t, parent, "child")
	pid := cgrouptest.Process(t, child)
	ids, err := cgroup.Ancestry(pid)
	if err != nil || len(ids) != 2 {
		t.Fatalf("process %d is in %v, %v; want two cgroups", pid, ids, err)
	}
	for i, folder := range []string{child, parent} {
		if want, err := cgroup.Lookup(folder); err != nil || ids[i] != want {
			t.Errorf("%s: %d, %v; want %d", folder, ids[i], err, want)
		}
	}
}

func TestOtherFoldersAndProcessesAreRefused(t *testing.T) {
	gone := cgrouptest.New(t)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		gone:        simerr.ErrNotFound,
		t.TempDir(): simerr.ErrNotSupported,
		filepath.Join(cgrouptest.New(t), "cgroup.procs"): simerr.ErrInvalid,
	} {
		if _, err := cgroup.Lookup(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if _, err := cgroup.Ancestry(1 << 30); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("a process that does not exist: %v, want %v", err, simerr.ErrNotFound)
	}
}
