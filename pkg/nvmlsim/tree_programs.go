// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The driver's programs in the tree are scripts, because other processes than gpu-sim
// create the tree, and containers get the programs without gpu-sim and the state of
// the node.

// programs lists the driver's programs that gpu-sim simulates. Its commands have the
// same names.
var programs = []string{"nvidia-cuda-mps-control", "nvidia-smi"}

// mpsControl is a script; its arguments are the path of gpu-sim and the driver's
// version. In a container there is no daemon to start.
const mpsControl = `#!/bin/sh
sim='%[1]s'
root="$(dirname "$0")/../.."
if [ -x "$sim" ] && [ -e "$root/var/lib/gpu-sim/state.json" ]; then
	GPU_SIM_STATE="$root" exec "$sim" nvidia-cuda-mps-control "$@"
fi
echo "simulated NVIDIA driver %[2]s: use gpu-sim show on the host"
exit 1
`

// smiScript contains the node's GPUs and MIG devices and prints the ones whose device
// nodes exist. Its output hides other GPUs; the text of the script does not.
//
//go:embed nvidia-smi.sh
var smiScript string

// simLine is where a program names gpu-sim.
var simLine = regexp.MustCompile(`(?m)^sim='(.*)'$`)

// refreshPrograms writes the programs that are missing, name another gpu-sim
// than this process finds, or show another state. A process that finds no gpu-sim
// keeps the one that they name, and one that may not write leaves them.
func (t tree) refreshPrograms(st *State) error {
	sim := findGPUSim()
	for _, name := range programs {
		path := t.path(filepath.Join("usr/bin", name))
		have, err := os.ReadFile(path)
		sim := sim
		if named := simLine.FindSubmatch(have); err == nil && sim == "" && named != nil {
			sim = string(named[1])
		}
		want := fmt.Sprintf(mpsControl, sim, t.node.model.DriverVersion)
		if name == "nvidia-smi" {
			want = t.smi(sim, st)
		}
		if string(have) == want {
			continue
		}
		err = t.replaceProgram(path, want)
		if have != nil && errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return fmt.Errorf("simulated node: %w", err)
		}
	}
	return nil
}

// smi returns nvidia-smi for a state of the node.
func (t tree) smi(sim string, st *State) string {
	var gpus, migs, pairs []string
	for i, s := range t.node.gpus {
		g := &st.GPUs[i]
		gpus = append(gpus, smiLine(t.smiGPU(s, g)...))
		for j := range g.Instances {
			in := &g.Instances[j]
			for k := range in.Compute {
				ci := &in.Compute[k]
				migs = append(migs, smiLine(s.minor, instanceCap(s.minor, in.ID), computeCap(s.minor, in.ID, ci.ID),
					s.migName(in, ci), ci.UUID, s.profiles[in.Profile].MemoryMiB, in.ID, ci.ID))
			}
		}
		for _, other := range t.node.gpus[:i] {
			pairs = append(pairs, smiLine(s.minor, other.minor, t.node.relation(s, other)))
		}
	}
	return strings.NewReplacer(
		"@SIM@", sim, "@VERSION@", t.node.model.DriverVersion, "@CUDA@", t.node.model.CUDAVersion, "@MONITOR@", fmt.Sprint(capMonitor),
		"@GPUS@", strings.Join(gpus, "\n"), "@MIGS@", strings.Join(migs, "\n"), "@PAIRS@", strings.Join(pairs, "\n"),
	).Replace(smiScript)
}

// smiGPU lists what nvidia-smi shows of a GPU; a value that the GPU does not have
// is nil.
func (t tree) smiGPU(s *spec, g *GPUState) []any {
	enabled := func(on *bool) any {
		switch {
		case on == nil:
			return nil
		case *on:
			return "Enabled"
		default:
			return "Disabled"
		}
	}
	var mode, pending, numa, memoryNUMA, serial any
	cpus := ""
	if s.kind.MIG != nil {
		mode, pending = enabled(&g.MIGMode), enabled(&g.MIGPending)
	}
	if node := s.gpu.NUMANode; node != nil {
		numa, cpus = *node, t.node.model.NUMANodes[*node].CPUs
	}
	if node := s.gpu.MemoryNUMANode; node != nil {
		memoryNUMA = *node
	}
	if s.gpu.Serial != "" {
		serial = s.gpu.Serial
	}
	compute := strings.Replace(g.ComputeMode, string(gpu.ComputeModeExclusiveProcess), "Exclusive_Process", 1)
	return []any{
		s.minor, s.uuid, s.kind.Name, longAddress(s.address), s.kind.MemoryMiB, s.kind.ReservedMiB, s.kind.ComputeCapability, serial,
		mode, pending, compute, enabled(g.Persistence), enabled(g.ECC), enabled(g.ECCPending), numa, cpus, memoryNUMA,
	}
}

// smiLine writes a line of nvidia-smi's tables.
func smiLine(cells ...any) string {
	// Cells and lines have separators of their own.
	without := strings.NewReplacer("|", "/", "\n", " ")
	line := make([]string, len(cells))
	for i, cell := range cells {
		if cell != nil {
			line[i] = without.Replace(fmt.Sprint(cell))
		}
	}
	return strings.Join(line, "|")
}

// changesPrograms reports whether nvidia-smi shows another thing after a change of
// the state.
func changesPrograms(before, after *State) bool {
	for i := range after.GPUs {
		a, b := &before.GPUs[i], &after.GPUs[i]
		switch {
		case a.MIGMode != b.MIGMode, a.MIGPending != b.MIGPending, a.ComputeMode != b.ComputeMode,
			!sameBool(a.ECC, b.ECC), !sameBool(a.ECCPending, b.ECCPending), !sameBool(a.Persistence, b.Persistence),
			!slices.EqualFunc(a.Instances, b.Instances, func(a, b Instance) bool {
				return a.Serial == b.Serial && slices.Equal(a.Compute, b.Compute)
			}):
			return true
		}
	}
	return false
}

func sameBool(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

// replaceProgram never shows a program half written: others run it at any time.
func (t tree) replaceProgram(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	err = errors.Join(err, file.Chmod(0o755), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// findGPUSim returns the path of gpu-sim, or "" if there is none. It reads GPU_SIM,
// and searches the folder of this executable and the path.
func findGPUSim() string {
	if path := os.Getenv("GPU_SIM"); path != "" {
		return path
	}
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "gpu-sim")
		if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
			return sibling
		}
	}
	path, err := exec.LookPath("gpu-sim")
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}
