// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/pkg/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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
	data, err := file.Read(filepath.Join(string(r), "proc", strconv.Itoa(pid), name))
	return string(data), err
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
	mounts, err := r.start(pid, "mountinfo", maxMounts)
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

// start returns the lines at the start of a file, at most as many bytes as most.
func (r Root) start(pid int, name string, most int64) (string, error) {
	file, err := os.Open(filepath.Join(string(r), "proc", strconv.Itoa(pid), name))
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(file, most))
	if int64(len(text)) == most {
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
		if pod, container = ContainerOf(fields[2]); pod != "" {
			return pod, container
		}
	}
	return "", ""
}

// ContainerOf returns the pod's UID and the container's ID from the path of a cgroup. Both
// are empty for a cgroup of no pod.
//
// The kubelet and the container runtime name cgroups in one of two ways:
//
//	/kubepods/burstable/pod<UID>/<container>
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<container>.scope
//
// A container can create cgroups of any name below its own, so the first pod in a path
// counts. In a cgroup namespace a path begins somewhere below the root, with "/..".
func ContainerOf(path string) (pod, container string) {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if pod = podOf(segment); pod == "" {
			continue
		}
		if i+1 < len(segments) {
			container = containerName(segments[i+1])
		}
		return pod, container
	}
	return "", ""
}

// ContainerGroup returns the path of a container's cgroup from that of one of its
// processes. The container's cgroup is the child of its pod's. A runtime can start the
// first process in a cgroup below it: crun does with systemd. The path stays unchanged if
// it is of no pod, and the result is empty for a process in the pod's cgroup itself.
func ContainerGroup(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		switch {
		case podOf(segment) == "":
		case i+1 == len(segments):
			return ""
		default:
			return strings.Join(segments[:i+2], "/")
		}
	}
	return path
}

// podOf returns the UID of the pod whose cgroup has the name, or "" for any other
// cgroup.
func podOf(segment string) string {
	name, systemd := strings.CutSuffix(segment, ".slice")
	if systemd {
		at := strings.LastIndex(name, "-pod")
		if at < 0 || !strings.HasPrefix(name, "kubepods") && !strings.Contains(name, "-kubepods") {
			return ""
		}
		name = name[at+1:]
	}
	uid, found := strings.CutPrefix(name, "pod")
	if systemd {
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	if !found || !isUID(uid) {
		return ""
	}
	return uid
}

// isUID reports whether a text can be the UID of a pod: a UUID or, for a static pod, a
// hash of 32 digits.
func isUID(text string) bool {
	return len(text) >= 32 && strings.Trim(text, "0123456789abcdef-") == ""
}

// containerName returns the ID in the name of a container's cgroup:
// "cri-containerd-<id>.scope", "crio-<id>.scope" or "<id>".
func containerName(segment string) string {
	name := strings.TrimSuffix(segment, ".scope")
	return name[strings.LastIndexByte(name, '-')+1:]
}
