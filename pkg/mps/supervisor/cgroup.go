package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/folder"
)

// cgroupNote is a file in the run directory that says which cgroup a supervisor
// has made. One that was there before is an administrator's, who may have given
// it limits, and stays.
func (o *Options) cgroupNote() string { return filepath.Join(o.RunDir, "cgroup") }

// openCgroup opens the daemons' cgroup and makes it where it is missing.
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

// removeCgroup removes the cgroup that a supervisor has made, unless something
// runs in it.
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
		return nil // the next supervisor has to know whose it is
	}
	return os.Remove(o.cgroupNote())
}
