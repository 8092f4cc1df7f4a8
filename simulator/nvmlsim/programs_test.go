// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func TestInstalledProgramsAreOneFile(t *testing.T) {
	// A node of a rack has the programs of IMEX besides.
	s, _ := newTestSim(t, "gb200")
	programs := s.Model().programs()
	if want := []string{"nvidia-smi", "nvidia-cuda-mps-control", "nvidia-imex", "nvidia-imex-ctl"}; !slices.Equal(programs, want) {
		t.Fatalf("programs %q, want %q", programs, want)
	}
	bin := filepath.Join(s.Root(), "usr/bin")
	stat := func(name string) os.FileInfo {
		t.Helper()
		info, err := os.Stat(filepath.Join(bin, name))
		noError(t, err)
		return info
	}
	for _, name := range programs {
		if info := stat(name); info.Mode() != 0o755 || info.Size() == 0 {
			t.Errorf("%s before the installation: %v, %d bytes", name, info.Mode(), info.Size())
		}
	}
	program := filepath.Join(t.TempDir(), "built")
	install := func(content string) os.FileInfo {
		t.Helper()
		noError(t, os.WriteFile(program, []byte(content), 0o644))
		noError(t, s.InstallPrograms(program))
		for _, name := range append(slices.Clone(programs), "gpu-sim") {
			data, err := os.ReadFile(filepath.Join(bin, name))
			if err != nil || string(data) != content {
				t.Errorf("%s has %d bytes, %v; want %d", name, len(data), err, len(content))
			}
			if info := stat(name); !os.SameFile(info, stat("gpu-sim")) || info.Mode() != 0o755 {
				t.Errorf("%s is a file of its own, or not a program: %v", name, info.Mode())
			}
		}
		return stat("gpu-sim")
	}
	first := install("one")
	if again := install("one"); !os.SameFile(first, again) {
		t.Error("the same program was installed again")
	}
	// More than one piece of a comparison.
	long := strings.Repeat("two", 100_000)
	second := install(long)
	if os.SameFile(first, second) {
		t.Error("a program that runs was overwritten")
	}
	install(long[:len(long)-1] + "3")
	install(long[:64<<10])
	install(long)
	noError(t, os.Remove(filepath.Join(bin, "nvidia-smi")))
	install(long)
	if err := s.InstallPrograms(filepath.Join(bin, "gpu-sim")); err != nil {
		t.Errorf("the installed one itself: %v", err)
	}
	if left, err := os.ReadDir(bin); err != nil || len(left) != len(programs)+1 {
		t.Errorf("folder %v, %v", left, err)
	}
}

func TestTheTablesFollowTheState(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	path := filepath.Join(s.Root(), "lib/firmware/nvidia/570.124.06/gsp_ga10x.bin")
	check := func(when string) os.FileInfo {
		t.Helper()
		want, err := s.SMITables()
		noError(t, err)
		got, err := ReadSMITables(s.Root())
		noError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o644 {
			t.Fatalf("%v, %v", info, err)
		}
		return info
	}
	created := check("after the creation")
	// While a container has the file mounted, no new file gets its inode.
	mounted, err := os.Open(path)
	noError(t, err)
	defer mounted.Close() //nolint:errcheck // it is read only
	noError(t, s.AddProcess(0, Process{PID: 1}))
	if !os.SameFile(created, check("with a process")) {
		t.Error("the file was replaced for a change that nvidia-smi does not print")
	}
	d := migOn(t, lib, 3)
	in := place(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4, 4)
	spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)
	if os.SameFile(created, check("with a MIG device")) {
		t.Error("a container's file was changed in place")
	}
	if got, err := ReadSMITables(s.Root()); err != nil || len(got.GPUs[3].MIGDevices) != 1 {
		t.Errorf("MIG devices %+v, %v", got.GPUs[3].MIGDevices, err)
	}
	noError(t, s.Reboot())
	check("after a reboot")
	// A node of an earlier release has none.
	noError(t, os.RemoveAll(filepath.Join(s.Root(), "lib")))
	noError(t, s.InstallPrograms(os.Args[0]))
	check("after an installation")
}

func TestTablesOfOthersAreSkipped(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadSMITables(root); err == nil {
		t.Error("no error without firmware")
	}
	want := &SMITables{DriverVersion: "2"}
	data, err := json.Marshal(want)
	noError(t, err)
	for version, content := range map[string][]byte{"1": bytes.Repeat([]byte{0x7f}, 100), "2": data} {
		path := filepath.Join(root, firmware(version))
		noError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		noError(t, os.WriteFile(path, content, 0o644))
	}
	got, err := ReadSMITables(root)
	noError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with the firmware of a real driver (-want +got):\n%s", diff)
	}
}

func TestAFileFindsItsNode(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	moved := filepath.Join(t.TempDir(), "elsewhere")
	noError(t, os.Rename(s.Root(), moved))
	link := filepath.Join(t.TempDir(), "link")
	noError(t, os.Symlink(filepath.Join(moved, "usr/bin/nvidia-smi"), link))
	for _, path := range []string{moved + "/usr/bin/nvidia-smi", link} {
		if got, err := OpenOwner(path); err != nil || got.Root() != moved {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	t.Chdir(filepath.Join(moved, "usr"))
	if got, err := OpenOwner("bin/nvidia-smi"); err != nil || got.Root() != moved {
		t.Errorf("a relative path: %v, %v", got, err)
	}
	if got, err := OpenOwner(os.Args[0]); err == nil {
		t.Errorf("a file of no node: %v", got)
	}
}
