// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// CheckRunDir returns an error if the run directory is in a folder that not every user
// can pass: an MPS server has the user of its client and would fail repeatedly. It checks
// the mount namespace of the daemons, and skips missing folders, which the supervisor
// creates.
func (o Options) CheckRunDir() error {
	return mounts{namespace: o.MountNamespace}.do(func() error {
		dir := filepath.Dir(o.RunDir)
		if err := checkPassable(dir); err != nil {
			return fmt.Errorf("run directory %s: %w", o.RunDir, err)
		}
		// If the path has links, their targets must be passable too.
		resolved, err := filepath.EvalSymlinks(dir)
		if err == nil {
			err = checkPassable(resolved)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("run directory %s: %w", o.RunDir, err)
		}
		return nil
	})
}

// checkPassable returns an error if not every user can pass a folder and its parents.
func checkPassable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.Mode()&0o001 == 0:
			return fmt.Errorf("%w: users other than root cannot pass %s (%s), and MPS servers have the user of their client: chmod o+x %s, or choose another --run-dir", gpu.ErrInvalid, dir, info.Mode(), dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
