// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	podUID    = "0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11"
	container = "3b8f0d9c6f1e4a7d8c2b5a6978f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c"
)

// process writes the files of a process.
func process(t *testing.T, root string, pid int, files map[string]string) {
	t.Helper()
	dir := filepath.Join(root, "proc", strconv.Itoa(pid))
	must(t, os.MkdirAll(dir, 0o755))
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

// stat returns proc/PID/stat of a process with the name and start time.
func stat(comm string, started int) string {
	return fmt.Sprintf("4711 (%s) S 1 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 1000 10 18446744073709551615 0 0\n", comm, started)
}

func TestTaskFindsThePodInTheCgroup(t *testing.T) {
	const underscored = "0f7a1c1e_6b0e_4a53_9d1c_0d6a2f0c9b11"
	for name, c := range map[string]struct {
		cgroup         string
		pod, container string
	}{
		"cgroup v2, systemd": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + container + ".scope\n", podUID, container,
		},
		"cgroup v2, systemd, guaranteed": {
			"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/cri-containerd-" + container + ".scope\n", podUID, container,
		},
		"cgroup v2, systemd, CRI-O": {
			"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/crio-" + container + ".scope\n", podUID, container,
		},
		"CRI-O with a cgroup for the container": {
			"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/crio-" + container + ".scope/container\n", podUID, container,
		},
		"kubepods below a root of the kubelet's own": {
			"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + container + ".scope\n", podUID, container,
		},
		"cgroup v2, cgroupfs": {"0::/kubepods/burstable/pod" + podUID + "/" + container + "\n", podUID, container},
		"cgroup v1": {
			"12:memory:/kubepods/burstable/pod" + podUID + "/" + container + "\n1:name=systemd:/kubepods/burstable/pod" + podUID + "/" + container + "\n0::/system.slice/containerd.service\n",
			podUID, container,
		},
		"cgroup v1, another hierarchy in the first line": {
			"13:misc:/\n12:memory:/kubepods/pod" + podUID + "/" + container + "\n", podUID, container,
		},
		"seen from the cgroup namespace of a pod of the same class": {
			"0::/../../kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + container + ".scope\n", podUID, container,
		},
		"seen from a cgroup namespace, cgroupfs": {"0::/../../pod" + podUID + "/" + container + "\n", podUID, container},
		"a container that made cgroups named as another pod's": {
			"0::/kubepods/burstable/pod" + podUID + "/" + container + "/kubepods/pod11111111-2222-3333-4444-555555555555/x\n", podUID, container,
		},
		"a static pod":                  {"0::/kubepods/burstable/pod2c9b5b1de0c1c6f3bb0e9bd35a4bd0a7/" + container + "\n", "2c9b5b1de0c1c6f3bb0e9bd35a4bd0a7", container},
		"the pod's own cgroup":          {"0::/kubepods/burstable/pod" + podUID + "\n", podUID, ""},
		"a service of the host":         {"0::/system.slice/nvidia-persistenced.service\n", "", ""},
		"a user of the host":            {"0::/user.slice/user-1000.slice/session-2.scope\n", "", ""},
		"podman on the host":            {"0::/machine.slice/libpod-" + container + ".scope\n", "", ""},
		"a name that resembles a pod's": {"0::/system.slice/podinfo-podcast.service\n0::/podman\n", "", ""},
		"no cgroups":                    {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			process(t, root, 4711, map[string]string{
				"stat": stat("py) (thon", 4242), "status": "Name:\tpy) (thon\nState:\tS (sleeping)\nNSpid:\t4711\t1\n", "cgroup": c.cgroup,
			})
			got, err := procfs.Root(root).Task(4711)
			must(t, err)
			want := gpu.Task{Command: "py) (thon", Started: 4242, PodUID: c.pod, ContainerID: c.container}
			require.Same(t, "task", want, got)
		})
	}
}

func TestAProcessWhosePIDPassesToAnotherHasEnded(t *testing.T) {
	root := t.TempDir()
	process(t, root, 4711, map[string]string{"stat": stat("python", 1), "status": "Name:\tpython\nNSpid:\t4711\n"})
	dir := filepath.Join(root, "proc", "4711")
	// The read waits here until the file is written.
	must(t, unix.Mkfifo(filepath.Join(dir, "cgroup"), 0o644))
	written := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(filepath.Join(dir, "cgroup"), os.O_WRONLY, 0)
		if err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(dir, "stat"), []byte(stat("python", 2)), 0o644), file.Close())
		}
		written <- err
	}()
	_, err := procfs.Root(root).Task(4711)
	require.Error(t, "Task", err, gpu.ErrNotFound)
	must(t, <-written)
}

// A container can give its processes any name, and cannot leave its PID
// namespace.
func TestAContainerIsNotMistakenForMPS(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, map[string]string{"stat": stat("nvidia-cuda-mps", 1), "status": "Name:\tnvidia-cuda-mps\nNSpid:\t1\n", "cgroup": "0::/gpu-mps\n"})
	process(t, root, 2, map[string]string{"stat": stat("nvidia-cuda-mps", 1), "status": "Name:\tnvidia-cuda-mps\nNSpid:\t2\t1\n", "cgroup": "0::/gpu-mps\n"})
	process(t, root, 3, map[string]string{"stat": stat("python", 1), "status": "Name:\tpython\nNSpid:\t3\n", "cgroup": "0::/\n"})
	for pid, want := range map[int]bool{1: true, 2: false, 3: false} {
		task, err := procfs.Root(root).Task(pid)
		if err != nil || task.IsMPS() != want {
			t.Errorf("process %d is MPS: %t, %v, want %t", pid, task.IsMPS(), err, want)
		}
	}
}

func TestTaskOfAnEndedProcessIsNotFound(t *testing.T) {
	root := t.TempDir()
	process(t, root, 7, map[string]string{"stat": stat("ends", 7)}) // it ended before its other files were read
	process(t, root, 8, map[string]string{"stat": "8 (odd)", "status": "", "cgroup": ""})
	for pid, want := range map[int]error{6: gpu.ErrNotFound, 7: gpu.ErrNotFound, 8: gpu.ErrCorrupt} {
		_, err := procfs.Root(root).Task(pid)
		require.Error(t, fmt.Sprintf("process %d", pid), err, want)
	}
}

func TestTaskReadsThisProcess(t *testing.T) {
	got, err := procfs.Root("/").Task(os.Getpid())
	must(t, err)
	if got.Command == "" || got.Started == 0 || !got.OnHost {
		t.Errorf("got %+v", got)
	}
}

var must = require.NoError
