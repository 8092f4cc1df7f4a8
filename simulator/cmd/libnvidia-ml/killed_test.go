// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// A program may end at any time. The next one that opens the node finds the files of exactly
// the MIG devices that the state has.
func TestAKilledProgramLeavesTheNodeConsistent(t *testing.T) {
	library := build(t)
	program := compile(t, "testdata/steps.c", library)
	sim := node(t, "dgx-h100")
	for round := range 30 {
		kill(t, program, library, round%4)
		// The place is free for the next round.
		again, err := nvmlsim.Open(sim.Root())
		must(t, err)
		st, err := again.State()
		must(t, err)
		if diff := cmp.Diff(wantFiles(st), migFiles(t, sim.Root())); diff != "" {
			t.Fatalf("round %d (-of the state +files):\n%s", round, diff)
		}
		must(t, again.Reboot())
	}
}

// kill runs a program that changes the node, and kills it when it has made some MIG devices.
func kill(t *testing.T, program, library string, devices int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library))
	c.Stdin = strings.NewReader("init\nhandle\nchange\n")
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewScanner(out)
	for made := 0; made <= devices && lines.Scan(); {
		if lines.Text() == "made" {
			made++
		} else if !strings.HasSuffix(lines.Text(), ": "+success) {
			t.Fatal(lines.Text())
		}
	}
	must(t, c.Process.Kill())
	_ = c.Wait() // it was killed
}

// wantFiles returns the capabilities of the MIG devices of the first GPU.
func wantFiles(st *nvmlsim.State) []string {
	files := []string{}
	for _, in := range st.GPUs[0].Instances {
		files = append(files, fmt.Sprintf("gi%d/access", in.ID))
		for _, ci := range in.Compute {
			files = append(files, fmt.Sprintf("gi%d/ci%d/access", in.ID, ci.ID))
		}
	}
	slices.Sort(files)
	return files
}

// migFiles returns the capabilities of the first GPU that have a device node. A node without a
// capability is in the list too.
func migFiles(t *testing.T, root string) []string {
	t.Helper()
	capabilities := filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig")
	paths, err := filepath.Glob(capabilities + "/gi*/access")
	must(t, err)
	more, err := filepath.Glob(capabilities + "/gi*/ci*/access")
	must(t, err)
	nodes, err := filepath.Glob(filepath.Join(root, "dev/nvidia-caps/nvidia-cap*"))
	must(t, err)
	files := []string{}
	for _, path := range append(paths, more...) {
		text, err := os.ReadFile(path)
		must(t, err)
		var minor int
		if _, err := fmt.Sscanf(string(text), "DeviceFileMinor: %d", &minor); err != nil {
			t.Fatalf("%s: %q", path, text)
		}
		name := filepath.Join(root, fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", minor))
		if i := slices.Index(nodes, name); i >= 0 {
			nodes = slices.Delete(nodes, i, i+1)
			files = append(files, strings.TrimPrefix(path, capabilities+"/"))
		}
	}
	for _, name := range nodes {
		if base := filepath.Base(name); base != "nvidia-cap1" && base != "nvidia-cap2" {
			files = append(files, base)
		}
	}
	slices.Sort(files)
	return files
}
