// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// maxOpen is the number of open files of a process that are read. A process can have any number.
const maxOpen = 1 << 12

// Openers returns the processes that have one of the files open, by PID, without this process. It
// leaves out processes whose files it has no right to read. A task is empty if it cannot be read.
// names are paths in a container; in another root a path ends with them. A process can open a file
// with such a path elsewhere, so the result is for messages only. Source: proc/PID/fd.
func (r Root) Openers(names []string) (map[int]gpu.Task, error) {
	processes, err := filepath.Glob(filepath.Join(string(r), "proc", "[1-9]*"))
	if err != nil {
		return nil, err
	}
	all := map[int]gpu.Task{}
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || pid == os.Getpid() || !hasOpen(filepath.Join(process, "fd"), names) {
			continue
		}
		if task, err := r.Task(pid); !errors.Is(err, gpu.ErrNotFound) {
			all[pid] = task
		}
	}
	return all, nil
}

// hasOpen reports whether one of the links in a folder leads to one of the files.
func hasOpen(folder string, names []string) bool {
	dir, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer dir.Close() //nolint:errcheck // it was only read
	links, _ := dir.Readdirnames(maxOpen)
	return slices.ContainsFunc(links, func(link string) bool {
		path, _ := os.Readlink(filepath.Join(folder, link))
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(path, name) })
	})
}
