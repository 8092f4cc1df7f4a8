package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// CheckRunDir refuses a run directory in a folder that not every user can pass:
// an MPS server has the user of its client, and would fail over and over again.
// It looks where the daemons see their files, and passes over folders that are
// missing, which the supervisor makes.
func (o Options) CheckRunDir() error {
	return mounts{namespace: o.MountNamespace}.do(func() error {
		dir := filepath.Dir(o.RunDir)
		if err := checkPassable(dir); err != nil {
			return fmt.Errorf("run directory %s: %w", o.RunDir, err)
		}
		// Where it is behind links, the folders there count as well.
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

// checkPassable looks at a folder and all that it is in.
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
