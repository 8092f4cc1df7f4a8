// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds control groups (cgroups) of version 2. It changes none. The simulated
// driver limits the GPU memory of a cgroup.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// ID is the kernel's number of a cgroup: the inode of its folder. A cgroup that is
// removed and created again at the same path has another ID.
type ID uint64

// RootID is the ID of the root, which has no limits.
const RootID ID = 1

// Root returns the folder at which version 2 is mounted. The error wraps
// [simerr.ErrNotSupported] if it is mounted nowhere.
func Root() (string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup2" || m.Root != "/", false
	})
	if err != nil {
		return "", fmt.Errorf("find the cgroups of version 2: %w", err)
	}
	if len(mounts) == 0 {
		return "", fmt.Errorf("find the cgroups of version 2: %w: they are mounted nowhere", simerr.ErrNotSupported)
	}
	return mounts[0].Mountpoint, nil
}

// Lookup returns the ID of the cgroup whose folder is at the path. The error wraps
// [simerr.ErrNotFound] if there is none, and [simerr.ErrNotSupported] if the folder is not a
// cgroup of version 2.
func Lookup(path string) (ID, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(path, &system); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("cgroup %s: %w", path, simerr.ErrNotFound)
	} else if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if system.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("cgroup %s: %w: it is not of version 2", path, simerr.ErrNotSupported)
	}
	var folder unix.Stat_t
	if err := unix.Stat(path, &folder); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if folder.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, fmt.Errorf("cgroup %s: %w: it is a file", path, simerr.ErrInvalid)
	}
	return ID(folder.Ino), nil
}

// Ancestry returns the IDs of a process' cgroup and of the cgroups above it, the nearest
// first. It leaves out the root. The error wraps [simerr.ErrNotFound] if there is no such
// process in the PID namespace of this one, or its cgroup is outside this process' view of
// the cgroups.
func Ancestry(pid int) ([]ID, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	path, err := below(root, pid)
	if err != nil {
		return nil, err
	}
	var ids []ID
	for ; path != root; path = filepath.Dir(path) {
		id, err := Lookup(path)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// below returns the folder of a process' cgroup, given the root's.
func below(root string, pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, simerr.ErrNotFound)
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
	return "", fmt.Errorf("cgroup of process %d: %w in this cgroup namespace", pid, simerr.ErrNotFound)
}
