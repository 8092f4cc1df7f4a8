// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Cgroups are the cgroup hierarchies of the machine: one with version 2, one
// per controller with version 1, and both on a hybrid one.
type Cgroups struct {
	// roots are mount points, sorted.
	roots []string
	// tracking is the root whose cgroups name a cluster's processes.
	tracking string
	unified  bool
}

// FindCgroups finds the mounted hierarchies. It fails if there is none.
func FindCgroups() (Cgroups, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Cgroups{}, fmt.Errorf("find cgroups: %w", err)
	}
	if len(mounts) == 0 {
		return Cgroups{}, errors.New("find cgroups: no cgroup hierarchy is mounted")
	}
	c := Cgroups{unified: true}
	for _, m := range mounts {
		c.roots = append(c.roots, m.Mountpoint)
		if m.FSType == "cgroup" {
			c.unified = false
		}
	}
	slices.Sort(c.roots)
	c.roots = slices.Compact(c.roots)
	c.tracking = c.roots[0]
	// With version 1 a process can join "pids" without further settings, and
	// runc puts every container into it.
	for _, m := range mounts {
		if slices.Contains(strings.Split(m.VFSOptions, ","), "pids") {
			c.tracking = m.Mountpoint
		}
	}
	return c, nil
}

// Create makes a cgroup in every hierarchy, and below it one for daemons,
// whose directory it returns: what writes its process ID into the file
// cgroup.procs there is found by Kill, and so are its descendants.
func (c Cgroups) Create(path string) (daemons string, err error) {
	for _, root := range c.roots {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			return "", fmt.Errorf("create cgroup: %w", err)
		}
	}
	if c.unified {
		if err := c.delegate(path); err != nil {
			return "", err
		}
	}
	// With version 2 a cgroup that has children cannot have processes too.
	daemons = filepath.Join(c.tracking, path, "daemons")
	if err := os.MkdirAll(daemons, 0o755); err != nil {
		return "", fmt.Errorf("create cgroup: %w", err)
	}
	return daemons, nil
}

// delegate enables every controller of the root for a cgroup's children. The
// kubelet refuses a cgroup that lacks some.
func (c Cgroups) delegate(path string) error {
	data, err := os.ReadFile(filepath.Join(c.tracking, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("delegate cgroup %s: %w", path, err)
	}
	enable := "+" + strings.Join(strings.Fields(string(data)), " +")
	for _, dir := range []string{c.tracking, filepath.Join(c.tracking, path)} {
		if err := enableControllers(dir, enable); err != nil {
			return fmt.Errorf("delegate cgroup %s: %w", path, err)
		}
	}
	return nil
}

// enableControllers enables controllers for the children of a cgroup of version 2.
// The kernel refuses that while processes are in the cgroup itself, as in a container. They move to a child
// "init" for good.
func enableControllers(dir, enable string) error {
	control := filepath.Join(dir, "cgroup.subtree_control")
	err := os.WriteFile(control, []byte(enable), 0o644)
	// A process can start another one meanwhile.
	for range 10 {
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := moveProcesses(dir, filepath.Join(dir, "init")); err != nil {
			return err
		}
		err = os.WriteFile(control, []byte(enable), 0o644)
	}
	return err
}

func moveProcesses(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(data)) {
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("process %s: %w", pid, err)
		}
	}
	return nil
}

// Members returns the IDs of all processes in a cgroup and below, in ascending order.
// It returns none if the cgroup does not exist.
func (c Cgroups) Members(path string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(filepath.Join(c.tracking, path), func(dir string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(dir)
		if err != nil {
			// The cgroup went away, and its processes before it.
			return nil //nolint:nilerr // see above
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			pids = append(pids, pid)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("members of cgroup %s: %w", path, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Kill kills every process in a cgroup and below, and waits for their end.
func (c Cgroups) Kill(ctx context.Context, path string) error {
	var left []int
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		var err error
		if left, err = c.Members(path); err != nil {
			return false, err
		}
		for _, pid := range left {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return false, fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("kill the processes of cgroup %s: %w (left: %v)", path, err, left)
	}
	return nil
}

// Remove removes a cgroup without processes from every hierarchy. It need not
// exist.
func (c Cgroups) Remove(ctx context.Context, path string) error {
	for _, root := range c.roots {
		dir := filepath.Join(root, path)
		var last error
		// A killed process leaves its cgroup a moment later.
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
			last = removeTree(dir)
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("remove cgroup: %w", errors.Join(err, last))
		}
	}
	return nil
}

// removeTree removes a directory of a cgroup hierarchy with those below it.
// The files in it vanish by themselves and cannot be removed.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
