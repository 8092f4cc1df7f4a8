package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// The driver's programs stand in the tree as scripts that call gpu-sim, because
// the tree is made by processes that are not gpu-sim.

// programs are the driver's programs that gpu-sim stands in for, by the name
// of its command.
var programs = []string{"nvidia-cuda-mps-control", "nvidia-smi"}

// program is a script; its arguments are the path of gpu-sim, the driver's
// version and the program's name. A container that was given the program has
// neither gpu-sim nor the node's state.
const program = `#!/bin/sh
sim='%[1]s'
state="$(dirname "$0")/../../.."
if [ -x "$sim" ] && [ -e "$state/state.json" ]; then
	GPU_SIM_STATE="$state" exec "$sim" %[3]s "$@"
fi
echo "simulated NVIDIA driver %[2]s: use gpu-sim show on the host"
[ $# -eq 0 ] && [ %[3]s = nvidia-smi ]
`

// refreshPrograms writes the programs that are missing or name another gpu-sim
// than this process finds. A process that may not write leaves them.
func (t tree) refreshPrograms() error {
	sim := findGPUSim()
	for _, name := range programs {
		path := t.path(filepath.Join("usr/bin", name))
		have, err := os.ReadFile(path)
		if err == nil && sim == "" {
			continue
		}
		want := fmt.Sprintf(program, sim, t.node.model.DriverVersion, name)
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

// findGPUSim looks for gpu-sim where GPU_SIM says, beside this executable, and
// on the path. It is empty where there is none.
func findGPUSim() string {
	if path := os.Getenv("GPU_SIM"); path != "" {
		return path
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "gpu-sim")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside
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
