// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Pods finds the cgroups of pods. The kernel removes no cgroup that has a process, and no
// process leaves the cgroup of its pod, so a pod without one has no process.
type Pods struct {
	hierarchy string

	mu sync.Mutex
	// parents are where pods had their cgroups when all were listed last.
	parents []parent
}

// parent is a folder with the cgroups of pods.
type parent struct {
	folder string
	// prefix of their names before "pod", and whether systemd manages them.
	prefix  string
	systemd bool
}

// FindPods returns the cgroups of the pods of a machine, whose proc is below root. With
// cgroups of version 1 they are in the hierarchy that admits containers to device nodes.
// The error wraps [gpu.ErrNotSupported] if process 1 has none mounted. Sources:
// proc/1/mountinfo, proc/1/root; without the right to enter the latter, the whole hierarchy
// that this process has mounted.
func FindPods(root string) (*Pods, error) {
	pods, err := podsOf(filepath.Join(root, "proc", "1"), filepath.Join(root, "proc", "1", "root"))
	if !errors.Is(err, fs.ErrPermission) {
		return pods, err
	}
	if own, ownErr := podsOf(filepath.Join(root, "proc", "self"), root); ownErr == nil && isWhole(own.hierarchy) {
		return own, nil
	}
	return pods, err
}

// podsOf returns the cgroups of pods in the hierarchy that a process has mounted. process is its
// folder in proc, and root its root.
func podsOf(process, root string) (*Pods, error) {
	text, err := file.Read(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("find the cgroups of pods: %w", err)
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(text), mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("find the cgroups of pods: %w", err)
	}
	isDevices := func(m *mountinfo.Info) bool {
		return m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "devices")
	}
	at := slices.IndexFunc(mounts, isDevices)
	if at < 0 && !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.FSType == "cgroup" }) {
		at = min(0, len(mounts)-1) // version 2 has one hierarchy
	}
	if at < 0 {
		return nil, fmt.Errorf("find the cgroups of pods: %w: no hierarchy for devices is mounted", gpu.ErrNotSupported)
	}
	pods := PodsIn(filepath.Join(root, mounts[at].Mountpoint))
	return pods, pods.check()
}

// isWhole reports whether a folder is the root of a hierarchy. A container may have a part of it
// only. Source: cgroups(7); only the root of version 1 has release_agent, and only the root of
// version 2 lacks cgroup.events.
func isWhole(hierarchy string) bool {
	if _, err := os.Stat(filepath.Join(hierarchy, "release_agent")); err == nil {
		return true
	}
	_, isV2 := os.Stat(filepath.Join(hierarchy, "cgroup.controllers"))
	_, events := os.Stat(filepath.Join(hierarchy, "cgroup.events"))
	return isV2 == nil && errors.Is(events, fs.ErrNotExist)
}

// PodsIn returns the cgroups of pods in the hierarchy whose root is the folder.
func PodsIn(folder string) *Pods { return &Pods{hierarchy: folder} }

// check returns an error if the hierarchy is not visible. It would seem to be empty.
func (p *Pods) check() error {
	if _, err := os.Stat(filepath.Join(p.hierarchy, "cgroup.procs")); err != nil {
		return fmt.Errorf("cgroups of pods: %w", err)
	}
	return nil
}

// Lives reports whether the pod has a process that has not ended. pid is one of them, or 0 if
// none is found any more. After an error the pod may live.
func (p *Pods) Lives(uid string) (pid int, lives bool, err error) {
	if err := p.check(); err != nil {
		return 0, false, err
	}
	found, folder, err := populated(p.usual(uid))
	if err == nil && !found {
		var all []string
		err = p.each(func(pod, folder string) {
			if pod == uid {
				all = append(all, folder)
			}
		})
		if err == nil {
			_, folder, err = populated(all)
		}
	}
	if folder == "" || err != nil {
		return 0, false, err
	}
	pid, _ = Process(folder) // for messages only
	return pid, true, nil
}

// populated returns the first of the cgroups that has a process, or "". found reports
// whether one of them exists.
func populated(folders []string) (found bool, folder string, err error) {
	for _, folder := range folders {
		has, err := HasProcesses(folder)
		switch {
		case errors.Is(err, gpu.ErrNotFound):
		case has || err != nil:
			return true, folder, err
		default:
			found = true
		}
	}
	return found, "", nil
}

// usual returns the folders that the pod's cgroup has if it is next to those of other pods.
func (p *Pods) usual(uid string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	folders := make([]string, len(p.parents))
	for i, at := range p.parents {
		name := at.prefix + "pod" + uid
		if at.systemd {
			name = at.prefix + "pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		}
		folders[i] = filepath.Join(at.folder, name)
	}
	return folders
}

// mostCgroups limits the cgroups of one walk. A machine has some hundreds, but a program that
// manages a part of them can create any number there.
const mostCgroups = 1 << 16

// each calls do with the UID and the cgroup of each pod. It does not list the cgroups below a
// pod's: the first pod in a path counts.
func (p *Pods) each(do func(uid, folder string)) error {
	var parents []parent
	err := walk(p.hierarchy, func(folder string) error {
		name := filepath.Base(folder)
		uid := podOf(name)
		if uid == "" {
			return nil
		}
		_, systemd := strings.CutSuffix(name, ".slice")
		at := parent{filepath.Dir(folder), name[:strings.LastIndex(name, "pod")], systemd}
		if !slices.Contains(parents, at) {
			parents = append(parents, at)
		}
		do(uid, folder)
		return fs.SkipDir
	})
	if err != nil {
		return fmt.Errorf("cgroups of pods: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parents = parents
	return nil
}

// walk calls do with the folder of a cgroup and of each one below it, as [filepath.WalkDir].
// It leaves out cgroups that are removed meanwhile.
func walk(folder string, do func(folder string) error) error {
	left := mostCgroups
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case path == folder && errors.Is(err, fs.ErrNotExist):
			return gpu.ErrNotFound
		case isRemoved(err):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		}
		if left--; left < 0 {
			return fmt.Errorf("more than %d cgroups", mostCgroups)
		}
		return do(path)
	})
}

// isRemoved reports whether a cgroup was removed before it was read. The kernel answers
// ENODEV for a cgroup that is removed while it is read.
func isRemoved(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// Container is a container of a pod.
type Container struct {
	PodUID, ID string
	// PID is the smallest of its processes.
	PID int
}

// Containers returns the containers that have a process, in no order. The ID is empty for
// processes of the pod that are in none.
func (p *Pods) Containers() ([]Container, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var all []Container
	var errs []error
	err := p.each(func(uid, folder string) {
		containers, err := containersOf(uid, folder)
		all, errs = append(all, containers...), append(errs, err)
	})
	return all, errors.Join(append(errs, err)...)
}

// containersOf returns the containers of a pod with the cgroup.
func containersOf(uid, folder string) ([]Container, error) {
	first := map[string]int{}
	err := walk(folder, func(group string) error {
		pids, err := processes(group)
		if len(pids) == 0 || err != nil {
			return err
		}
		id := ""
		if group != folder {
			below, err := filepath.Rel(folder, group)
			if err != nil {
				return err
			}
			id, _, _ = strings.Cut(below, "/")
			id = containerName(id)
		}
		pid := slices.Min(pids)
		if known := first[id]; known == 0 || pid < known {
			first[id] = pid
		}
		return nil
	})
	if err != nil && !errors.Is(err, gpu.ErrNotFound) {
		return nil, fmt.Errorf("containers of pod %s: %w", uid, err)
	}
	all := make([]Container, 0, len(first))
	for id, pid := range first {
		all = append(all, Container{PodUID: uid, ID: id, PID: pid})
	}
	return all, nil
}
