// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGPUWithoutNUMANodePublishesNone(t *testing.T) {
	m, err := LoadModel("t4")
	noError(t, err)
	m.GPUs[0].NUMANode = nil
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	data, err := os.ReadFile(filepath.Join(s.Root(), "sys/bus/pci/devices/0000:18:00.0/numa_node"))
	if err != nil || string(data) != "-1\n" {
		t.Errorf("numa_node %q, %v", data, err)
	}
}

func TestDeviceNodesHaveTheNumbersOfTheDriver(t *testing.T) {
	s, _ := newTestSim(t, "dgx-h100")
	for name, want := range map[string][2]uint32{
		"nvidia0": {195, 0}, "nvidia7": {195, 7}, "nvidiactl": {195, 255}, "nvidia-modeset": {195, 254},
		"nvidia-uvm": {510, 0}, "nvidia-uvm-tools": {510, 1}, "nvidia-caps/nvidia-cap1": {511, 1},
		"nvidia-fs0": {507, 0}, "gdrdrv": {508, 0}, "infiniband/uverbs0": {231, 192}, "infiniband/rdma_cm": {231, 255},
	} {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(s.Root(), "dev", name), &stat); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// Only who may make device nodes gets them; others get plain files.
		if !s.tree().realDevices() {
			want = [2]uint32{}
		}
		if got := [2]uint32{unix.Major(stat.Rdev), unix.Minor(stat.Rdev)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestMIGMinorsMatchTheDriver(t *testing.T) {
	s, _ := newTestSim(t, "dgx-h100")
	data, err := os.ReadFile(filepath.Join(s.Root(), "proc/driver/nvidia-caps/mig-minors"))
	noError(t, err)
	got := strings.Split(string(data), "\n")
	for _, want := range []string{"config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4", "gpu1/gi0/access 138", "gpu31/gi14/ci7/access 4322"} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q", want)
		}
	}
}

func TestNoLinkInTheTreeIsBroken(t *testing.T) {
	for _, model := range ModelNames() {
		s, _ := newTestSim(t, model)
		err := filepath.WalkDir(s.Root(), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type()&fs.ModeSymlink == 0 {
				return err
			}
			target, err := filepath.EvalSymlinks(path)
			if err == nil && !strings.HasPrefix(target, s.Root()) {
				err = fmt.Errorf("%s leads out of the tree to %s", path, target)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}
