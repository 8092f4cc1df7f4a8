// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Source is a folder as every mount table names it: a file system and a path in it. Unlike
// a path it is the same in all containers.
type Source struct {
	major, minor int
	path         string
}

// Source returns the source of a folder at a path of this process. The path has no
// symbolic links. The error wraps [gpu.ErrNotFound] if no mount contains it.
func (r Root) Source(folder string) (Source, error) {
	text, err := file.Read(filepath.Join(string(r), "proc", "self", "mountinfo"))
	if err != nil {
		return Source{}, fmt.Errorf("find the file system of %s: %w", folder, err)
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(text), nil)
	if err != nil {
		return Source{}, fmt.Errorf("find the file system of %s: %w", folder, err)
	}
	var at *mountinfo.Info
	below := ""
	for _, m := range mounts {
		rest, found := cutFolder(folder, m.Mountpoint)
		// A later mount at the same place hides the earlier one.
		if found && (at == nil || len(m.Mountpoint) >= len(at.Mountpoint)) {
			at, below = m, rest
		}
	}
	if at == nil {
		return Source{}, fmt.Errorf("find the file system of %s: %w", folder, gpu.ErrNotFound)
	}
	return Source{at.Major, at.Minor, path.Join(at.Root, below)}, nil
}

// Below returns the source of a folder in the folder.
func (s Source) Below(name string) Source {
	s.path = path.Join(s.path, name)
	return s
}

// contains reports whether a mount shows a file of the folder.
func (s Source) contains(m *mountinfo.Info) bool {
	below, found := cutFolder(m.Root, s.path)
	return found && below != "" && m.Major == s.major && m.Minor == s.minor
}

// isIn reports whether mounts, a mountinfo, can have a file of the folder. To parse it takes
// several times as long, and few containers on a node have a device.
func (s Source) isIn(mounts string) bool {
	name := path.Base(s.path)
	return strings.ContainsAny(name, " \t\n\\") || strings.Contains(mounts, name) // the kernel escapes these
}

// cutFolder returns the part of a path below a folder.
func cutFolder(name, folder string) (below string, found bool) {
	if name == folder {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(folder, "/")+"/")
}

// Mounted reports which of the sources the process has a file mounted of. Pass the first
// process of a container, because a later one often hides mounts from itself. A container
// cannot add such a mount: it does not see the file. All are false if the process has ended.
func (r Root) Mounted(pid int, sources []Source) ([]bool, error) {
	mounts, err := r.mountsOfAny(pid, sources)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	mounted := make([]bool, len(sources))
	for i, s := range sources {
		mounted[i] = slices.ContainsFunc(mounts, s.contains)
	}
	return mounted, nil
}

// mountsOfAny returns the mounts of a process. It returns none if the process has ended, or no
// mount can have a file of a source.
func (r Root) mountsOfAny(pid int, sources []Source) ([]*mountinfo.Info, error) {
	text, err := r.mounts(pid)
	if hasEnded(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(sources, func(s Source) bool { return s.isIn(text) }) {
		return nil, nil
	}
	return mountinfo.GetMountsFromReader(strings.NewReader(text), nil)
}

// hasEnded reports whether a file of proc could not be read because its process has ended.
// The kernel answers EINVAL for the mounts of a process that ends.
func hasEnded(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}
