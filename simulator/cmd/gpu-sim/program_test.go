// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// start runs a program with an empty environment, and returns its output and exit status.
func start(t *testing.T, c *exec.Cmd) (output string, status int) {
	t.Helper()
	c.Env = []string{}
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// userContainer is a root file system with the files that a CDI spec mounts into a
// container: the programs, the firmware and the device nodes of one GPU.
func userContainer(t *testing.T, state string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range []string{"usr/bin/nvidia-smi", "usr/bin/nvidia-cuda-mps-control", "dev/nvidia1", "lib/firmware/nvidia/570.124.06/gsp_ga10x.bin"} {
		target := filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(target), 0o755))
		must(t, os.Link(filepath.Join(state, path), target))
	}
	return root
}

func TestTheProgramsFindTheirNodeByTheirPath(t *testing.T) {
	state := filepath.Join(t.TempDir(), "node")
	ok(t, state, "create", "--model", "t4")
	// Another path for the root, as in a container that mounts it.
	mounted := filepath.Join(t.TempDir(), "mounted")
	must(t, os.Rename(state, mounted))
	for command, want := range map[string]string{
		"gpu-sim show":  "t4 with 4 GPUs in " + mounted,
		"nvidia-smi -L": "GPU 3: Tesla T4",
		"nvidia-smi compute-policy -i 1 --set-timeslice=2":             "Successfully set timeslice of GPU 1 to MEDIUM",
		"nvidia-cuda-mps-control -h":                                   "nvidia-cuda-mps-control: invalid: unknown option -h",
		"gpu-sim --state /nowhere show":                                "no simulated node",
		"gpu-sim nvidia-smi --query-gpu=count --format=csv,noheader":   "4\n4\n4\n4\n",
		"gpu-sim nvidia-smi -i 9 compute-policy --list":                "want an index below 4",
		"gpu-sim show --state=" + mounted + "/usr":                     "no simulated node",
		"gpu-sim --state=" + mounted + " nvidia-smi -c SOMETIMES -i 0": "want DEFAULT (0)",
	} {
		args := strings.Fields(command)
		if out, _ := start(t, exec.CommandContext(t.Context(), filepath.Join(mounted, "usr/bin", args[0]), args[1:]...)); !strings.Contains(strings.ToLower(out), strings.ToLower(want)) {
			t.Errorf("%s: %q, want %q", command, out, want)
		}
	}
	// A process may have the name without the path.
	named := exec.CommandContext(t.Context(), filepath.Join(mounted, "usr/bin/gpu-sim"), "-L")
	named.Args[0] = "nvidia-smi"
	if out, status := start(t, named); status != 0 || !strings.Contains(out, "Tesla T4") {
		t.Errorf("gpu-sim under the name nvidia-smi: %d, %s", status, out)
	}
}

func TestAUsersContainerHasTheProgramsAndNoNode(t *testing.T) {
	state := t.TempDir()
	ok(t, state, "create", "--model", "t4")
	root := userContainer(t, state)
	for _, tc := range []struct {
		command, want string
		status        int
	}{
		{"nvidia-smi -L", "GPU 0: Tesla T4 (UUID: GPU-", 0},
		{"nvidia-smi --query-gpu=count,pci.bus_id --format=csv,noheader", "1, 00000000:3B:00.0\n", 0},
		{"nvidia-smi compute-policy --list", "Insufficient permissions: simulated NVIDIA driver 570.124.06: use gpu-sim on the host\n", 4},
		{"nvidia-cuda-mps-control -d", "simulated NVIDIA driver: use gpu-sim show on the host\n", 1},
	} {
		args := strings.Fields(tc.command)
		if out, status := start(t, exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", args[0]), args[1:]...)); status != tc.status || !strings.Contains(out, tc.want) {
			t.Errorf("%s: status %d, %q; want %d, %q", tc.command, status, out, tc.status, tc.want)
		}
	}
	must(t, os.Remove(filepath.Join(root, "dev/nvidia1")))
	if out, status := start(t, exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/nvidia-smi"))); status != 6 || out != "No devices were found\n" {
		t.Errorf("without a device node: status %d, %q", status, out)
	}
	must(t, os.RemoveAll(filepath.Join(root, "lib")))
	if out, status := start(t, exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/nvidia-smi"), "-L")); status != 9 || !strings.Contains(out, "is not mounted") {
		t.Errorf("without the firmware: status %d, %q", status, out)
	}
}

// The file system has no C library, no shell, no /tmp and no /proc.
func TestTheReleasedProgramNeedsNothingOfItsContainer(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	must(t, err)
	flags := `-linkmode external -extldflags "-static"`
	i := slices.IndexFunc(strings.Split(string(makefile), "\n"), func(line string) bool {
		return strings.Contains(line, "./cmd/gpu-sim") && strings.Contains(line, flags) && strings.Contains(line, "netgo,osusergo")
	})
	if i < 0 {
		t.Fatalf("the Makefile does not build gpu-sim with %s", flags)
	}
	program := filepath.Join(t.TempDir(), "gpu-sim")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace,netgo,osusergo", "-ldflags", "-s -w "+flags, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := elf.Open(program)
	must(t, err)
	defer file.Close() //nolint:errcheck // only read
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
		t.Error("it is dynamically linked")
	}
	if os.Getuid() != 0 {
		t.Skip("a root file system of its own needs root")
	}
	node := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), program, "create", "--model", "t4", "--state", node).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for root, want := range map[string]string{userContainer(t, node): "GPU 0: ", node: "GPU 3: "} {
		c := exec.CommandContext(t.Context(), "/usr/bin/nvidia-smi", "-L")
		c.Dir, c.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
		out, status := start(t, c)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if last := lines[len(lines)-1]; status != 0 || !strings.HasPrefix(last, want) {
			t.Errorf("status %d, %q, want the last GPU to be %s", status, out, want)
		}
	}
}
