// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The programs of the driver that gpu-sim is, by their names in usr/bin.
const (
	SMIName         = "nvidia-smi"
	MPSControlName  = "nvidia-cuda-mps-control"
	IMEXName        = "nvidia-imex"
	IMEXControlName = "nvidia-imex-ctl"
)

// programs returns the names of the programs of the node's driver.
func (m *Model) programs() []string {
	names := []string{SMIName, MPSControlName}
	if m.Fabric != nil {
		names = append(names, IMEXName, IMEXControlName)
	}
	return names
}

// missingProgram takes the place of a program until [Sim.InstallPrograms]. A container
// toolkit finds it.
const missingProgram = `#!/bin/sh
echo "gpu-sim is not installed in this simulated driver: gpu-sim create --if-missing installs it"
exit 1
`

// InstallPrograms installs gpu-sim from the path in the root file system of the node. It
// is usr/bin/gpu-sim there and the driver's programs, which are one file with several names: a container gets single programs, and no link leads out of a mount.
// It does nothing if that gpu-sim is installed already. A process that runs an earlier one
// keeps it.
func (s *Sim) InstallPrograms(path string) error {
	unlock, err := lock(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := s.load()
	if err != nil {
		return err
	}
	t := s.tree()
	installed := t.path("usr/bin/gpu-sim")
	program, err := os.ReadFile(path)
	if err == nil {
		err = updateFile(installed, program, 0o755)
	}
	if err != nil {
		return fmt.Errorf("install the programs of the simulated driver: %w", err)
	}
	for _, name := range t.node.model.programs() {
		if err := linkProgram(installed, t.path(filepath.Join("usr/bin", name))); err != nil {
			return fmt.Errorf("install the programs of the simulated driver: %w", err)
		}
	}
	// A node of an earlier release has no tables.
	if err := t.refreshSMITables(st); err != nil {
		return fmt.Errorf("install the programs of the simulated driver: %w", err)
	}
	return nil
}

// linkProgram makes the path a hard link to the installed program, in one step.
func linkProgram(installed, path string) error {
	want, err := os.Stat(installed)
	if err != nil {
		return err
	}
	have, err := os.Stat(path)
	if err == nil && os.SameFile(have, want) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The caller has the lock of the node, so no other process uses the name.
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(installed, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// updateFile replaces a file unless it has that content already.
func updateFile(path string, content []byte, mode os.FileMode) error {
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	return replaceFile(path, content, mode)
}

// replaceFile replaces a file in one step, because other processes use it at any time.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
