// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
)

// Root is the directory that contains the proc of a PID namespace. It is "/" for the
// namespace of this process.
type Root string

// Task returns the name, the start time, the pod and the container of a process. The
// error wraps [gpu.ErrNotFound] if no process has the PID, or if the PID passes to
// another process during the call: the requested one has ended then.
func (r Root) Task(pid int) (gpu.Task, error) {
	task, err := r.read(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = fmt.Errorf("%w: %w", gpu.ErrNotFound, err)
	}
	if err != nil {
		return gpu.Task{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return task, nil
}

func (r Root) read(pid int) (gpu.Task, error) {
	started, err := r.started(pid)
	if err != nil {
		return gpu.Task{}, err
	}
	task := gpu.Task{Started: started}
	if err := r.readStatus(pid, &task); err != nil {
		return gpu.Task{}, err
	}
	groups, err := r.file(pid, "cgroup")
	if err != nil {
		return gpu.Task{}, err
	}
	task.PodUID, task.ContainerID = containerOf(groups)
	again, err := r.started(pid)
	if err == nil && again != started {
		err = fmt.Errorf("%w: its PID has passed to another process", gpu.ErrNotFound)
	}
	return task, err
}

func (r Root) file(pid int, name string) (string, error) {
	data, err := file.Read(r.path(pid, name))
	return string(data), err
}

func (r Root) path(pid int, name string) string {
	return filepath.Join(string(r), "proc", strconv.Itoa(pid), name)
}

// Containers returns the names of containers of a pod that the mounts of a process show.
// The kubelet mounts a file for the last message of each container,
// pods/<UID>/containers/<name>/<8 hexadecimal digits> of its root. Source:
// proc/PID/mountinfo, its first megabyte.
//
// A process that can mount, as in a separate user namespace, can show any name: the caller
// checks whether the pod has such a container. A volume of the pod cannot: its path has
// the UID before.
func (r Root) Containers(pid int, pod string) ([]string, error) {
	mounts, err := r.mounts(pid)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	var names []string
	_, err = mountinfo.GetMountsFromReader(strings.NewReader(mounts), func(m *mountinfo.Info) (skip, stop bool) {
		if name := containerIn(m.Root, pod); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return true, false
	})
	return names, err
}

// maxMounts is the number of bytes of a mountinfo that are read. A container has a few
// kilobytes.
const maxMounts = 1 << 20

// mounts returns the lines of proc/PID/mountinfo, of its first megabyte. The mounts of the
// runtime come first; a process that can mount can add any number.
func (r Root) mounts(pid int) (string, error) {
	text, err := file.ReadStart(r.path(pid, "mountinfo"), maxMounts)
	if len(text) == maxMounts {
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return string(text), err
}

// containerIn returns the container of a pod whose last message is in the file. The
// kubelet makes that file. The result is empty for any other file.
func containerIn(file, pod string) string {
	root, below, _ := strings.Cut(file, "/pods/"+pod+"/containers/")
	name, message, _ := strings.Cut(below, "/")
	if strings.Contains(root, pod) || len(message) != 8 || strings.Trim(message, "0123456789abcdef") != "" || len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}

// fieldsOf returns the fields of proc/PID/stat after the name. The name is in parentheses
// and may contain any character.
func fieldsOf(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// startField is the position of the start time in proc/PID/stat after the name: field 22 of
// all.
const startField = 22 - 3

// started returns the start time. Source: proc/PID/stat.
func (r Root) started(pid int) (uint64, error) {
	stat, err := r.file(pid, "stat")
	if err != nil {
		return 0, err
	}
	fields := fieldsOf(stat)
	if len(fields) <= startField {
		return 0, fmt.Errorf("%w: stat %q", gpu.ErrCorrupt, stat)
	}
	started, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: stat %q", gpu.ErrCorrupt, stat)
	}
	return started, nil
}

// readStatus reads the name and whether the process is in the PID namespace of this
// proc: it has one PID then, and one more for each namespace below.
// Source: the lines Name and NSpid of proc/PID/status.
func (r Root) readStatus(pid int, task *gpu.Task) error {
	status, err := r.file(pid, "status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Name":
			task.Command = strings.TrimSpace(value)
		case "NSpid":
			task.OnHost = len(strings.Fields(value)) == 1
		}
	}
	return nil
}

// containerOf returns the pod and the container of a process with these cgroups, one
// "ID:controllers:path" a line. Source: proc/PID/cgroup.
func containerOf(groups string) (pod, container string) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if pod, container = cgroup.ContainerOf(fields[2]); pod != "" {
			return pod, container
		}
	}
	return "", ""
}
