// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
)

// cgroupNote returns the path of the file that names the cgroup that a supervisor has
// created. Any other cgroup belongs to an administrator, may have limits, and stays.
func (o *Options) cgroupNote() string { return filepath.Join(o.RunDir, "cgroup") }

// openCgroup opens the daemons' cgroup and creates it if it is missing.
func (o *Options) openCgroup() (*os.File, error) {
	if _, err := os.Stat(o.Cgroup); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(o.cgroupNote(), []byte(o.Cgroup), 0o600); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
	}
	if err := os.MkdirAll(o.Cgroup, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return os.Open(o.Cgroup)
}

// removeCgroup removes the cgroup that a supervisor has created, unless a process runs in
// it.
func (o *Options) removeCgroup() error {
	made, err := os.ReadFile(o.cgroupNote())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = folder.Remove(string(made))
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if _, err := os.Stat(string(made)); err == nil {
		return nil // the next supervisor needs the note
	}
	return os.Remove(o.cgroupNote())
}
