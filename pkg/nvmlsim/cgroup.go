// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// cgroupFolder is the cgroup, below the root, with the cgroups that the simulator
// creates.
const cgroupFolder = "gpu-sim"

// PlaceInOwnCgroup moves a process into a new cgroup of version 2 and returns the
// cgroup's folder. It is for containers of a runtime that uses version 1: their
// processes may be in the root of version 2, which has no limits. A process that is in
// another cgroup than the root stays there, and the function returns that folder: runc
// creates cgroups of version 2 too if they are mounted at /sys/fs/cgroup/unified.
//
// Each call removes the cgroups of earlier calls that have no processes any more: the
// cgroup of a container ends with the container, and the runtime does not know these.
// The error wraps [gpu.ErrNotFound] if the process does not exist, and
// [gpu.ErrNotSupported] on a machine without cgroups of version 2.
func PlaceInOwnCgroup(pid int, name string) (folder string, err error) {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return "", fmt.Errorf("cgroup %q for process %d: %w: want the name of a folder", name, pid, gpu.ErrInvalid)
	}
	root, err := cgroup.Root()
	if err != nil {
		return "", err
	}
	if folder, err = cgroup.OfProcess(pid); err != nil || folder != root {
		return folder, err
	}
	parent := filepath.Join(root, cgroupFolder)
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create a cgroup for process %d: %w", pid, err)
	}
	// Without the lock, another call could remove the new cgroup while it is empty.
	locked, err := os.Open(parent)
	if err != nil {
		return "", fmt.Errorf("create a cgroup for process %d: %w", pid, err)
	}
	defer func() { _ = locked.Close() }()
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("create a cgroup for process %d: lock %s: %w", pid, parent, err)
	}
	if err := removeEmptyCgroups(parent); err != nil {
		return "", err
	}
	folder = filepath.Join(parent, name)
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create a cgroup for process %d: %w", pid, err)
	}
	err = os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)
	if errors.Is(err, unix.ESRCH) {
		err = gpu.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("move process %d into %s: %w", pid, folder, errors.Join(err, removeEmptyCgroups(parent)))
	}
	return folder, nil
}

// removeEmptyCgroups removes the cgroups below a folder that have no processes.
func removeEmptyCgroups(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("remove empty cgroups: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		err := unix.Rmdir(filepath.Join(parent, e.Name()))
		if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the empty cgroup %s: %w", e.Name(), err)
		}
	}
	return nil
}
