// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds control groups (cgroups) and the processes in them: those of pods in
// version 1 and 2, and others in version 2. It also reads from the path of a cgroup which
// container it is of. It changes none.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ID is the kernel's number of a cgroup: the inode of its folder. A cgroup that is
// removed and created again at the same path has another ID.
type ID uint64

// RootID is the ID of the root, which has no limits.
const RootID ID = 1

// systemRoot is where systems mount version 2 if they use it for all processes.
const systemRoot = "/sys/fs/cgroup"

// CheckContainers returns an error that wraps [gpu.ErrNotSupported] if containers have no
// cgroups of version 2. On a system with both versions they have one if the runtime puts them
// there, as runc does: then the container of this process has one too.
func CheckContainers() error {
	var system unix.Statfs_t
	if err := unix.Statfs(systemRoot, &system); err != nil {
		return fmt.Errorf("cgroups at %s: %w", systemRoot, err)
	}
	if system.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	root, err := Root()
	if err == nil {
		var own string
		if own, err = below(root, os.Getpid()); err == nil && own != root {
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: this process is in no cgroup of version 2", gpu.ErrNotSupported)
	}
	return fmt.Errorf("cgroups at %s are of version 1, and %w; boot the node with systemd.unified_cgroup_hierarchy=1", systemRoot, err)
}

// Root returns the folder at which version 2 is mounted. The error wraps
// [gpu.ErrNotSupported] if it is mounted nowhere.
func Root() (string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup2" || m.Root != "/", false
	})
	if err != nil {
		return "", fmt.Errorf("find the cgroups of version 2: %w", err)
	}
	if len(mounts) == 0 {
		return "", fmt.Errorf("find the cgroups of version 2: %w: they are mounted nowhere", gpu.ErrNotSupported)
	}
	return mounts[0].Mountpoint, nil
}

// CheckComplete returns an error if this process does not see all cgroups of version 2.
// That is so in a container with its own cgroup namespace. The error wraps
// [gpu.ErrNotSupported]. The paths of other programs are then of other cgroups or of none.
func CheckComplete() error {
	root, err := Root()
	if err != nil {
		return err
	}
	id, err := Lookup(root)
	if err == nil && id != RootID {
		err = fmt.Errorf("cgroups at %s: %w: this process sees those of its own container only; run it in the cgroup namespace of the host, as a privileged container is", root, gpu.ErrNotSupported)
	}
	return err
}

// Lookup returns the ID of the cgroup whose folder is at the path. The error wraps
// [gpu.ErrNotFound] if there is none, and [gpu.ErrNotSupported] if the folder is not a
// cgroup of version 2.
func Lookup(path string) (ID, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("cgroup %s: %w", path, gpu.ErrNotFound)
	} else if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if system.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("cgroup %s: %w: it is not of version 2", path, gpu.ErrNotSupported)
	}
	var folder unix.Stat_t
	if err := unix.Stat(path, &folder); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if folder.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, fmt.Errorf("cgroup %s: %w: it is a file", path, gpu.ErrInvalid)
	}
	return ID(folder.Ino), nil
}

// OfProcess returns the folder of a process' cgroup. The error wraps
// [gpu.ErrNotFound] if there is no such process in the PID namespace of this one, or
// its cgroup is outside this process' view of the cgroups.
func OfProcess(pid int) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return below(root, pid)
}

// below returns the folder of a process' cgroup, given the root's.
func below(root string, pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, gpu.ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		path, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !found {
			continue
		}
		// The kernel writes "/.." for a cgroup above the namespace's root.
		if path == "/.." || strings.HasPrefix(path, "/../") {
			break
		}
		return filepath.Join(root, path), nil
	}
	return "", fmt.Errorf("cgroup of process %d: %w in this cgroup namespace", pid, gpu.ErrNotFound)
}

// HasProcesses reports whether the cgroup with the folder, or one below it, has a process. A
// process that has ended and waits for its parent does not count. The error wraps [gpu.ErrNotFound] if there is no such cgroup. Sources:
// cgroup.events; with version 1 cgroup.procs of all of them.
func HasProcesses(folder string) (bool, error) {
	text, err := file.Read(filepath.Join(folder, "cgroup.events"))
	switch {
	case err == nil:
		return slices.Contains(strings.Split(string(text), "\n"), "populated 1"), nil
	case errors.Is(err, fs.ErrNotExist):
		found := false
		err = walk(folder, func(below string) error {
			pids, err := processes(below)
			if found = len(pids) > 0; found {
				return fs.SkipAll
			}
			return err
		})
		if err == nil {
			return found, nil
		}
	case isRemoved(err):
		err = gpu.ErrNotFound
	}
	return false, fmt.Errorf("cgroup %s: %w", folder, err)
}

// mostSearched is the number of cgroups that [Process] reads. A container can create any
// number below its own.
const mostSearched = 64

// Process returns a process in the cgroup with the folder, or in one below it. The error
// wraps [gpu.ErrNotFound] if it finds none. Source: cgroup.procs.
func Process(folder string) (pid int, err error) {
	left := mostSearched
	err = walk(folder, func(below string) error {
		pids, err := processes(below)
		if left--; len(pids) > 0 {
			pid = pids[0]
		}
		if pid != 0 || left == 0 {
			return fs.SkipAll
		}
		return err
	})
	if err == nil && pid == 0 {
		err = gpu.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("processes of cgroup %s: %w", folder, err)
	}
	return pid, nil
}

// processes returns the processes that are directly in the cgroup with the folder. It returns
// none if the cgroup does not exist.
func processes(folder string) ([]int, error) {
	text, err := file.Read(filepath.Join(folder, "cgroup.procs"))
	// A cgroup of threads has no list of processes: its parent has it.
	if isRemoved(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil, fmt.Errorf("%w: processes %q", gpu.ErrCorrupt, line)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
