// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	podUID      = "0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11"
	otherPodUID = "11111111-2222-3333-4444-555555555555"
)

// hierarchies creates a cgroup in the hierarchy of each version that the machine has.
func hierarchies(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"version 2": cgrouptest.New(t)}
	const devices = "/sys/fs/cgroup/devices"
	if _, err := os.Stat(devices); err != nil {
		return all
	}
	folder, err := os.MkdirTemp(devices, "cgrouptest-") //nolint:usetesting // a cgroup, not a folder on a disk
	must(t, err)
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	all["version 1"] = folder
	return all
}

// A pass over the PIDs misses such a program: it has another one every millisecond.
func TestAPodLivesWhileItsProgramForksAllTheTime(t *testing.T) {
	const (
		first = `echo $$ >"$2/cgroup.procs" && echo in && sh -c "$0" "$0" "$1"`
		forks = `[ -e "$1" ] && sh -c "$0" "$0" "$1" &`
	)
	for name, root := range hierarchies(t) {
		t.Run(name, func(t *testing.T) {
			pods := cgroup.PodsIn(root)
			container := root
			for _, below := range []string{"kubepods", "burstable", "pod" + podUID, "c0ffee"} {
				container = cgrouptest.Child(t, container, below)
			}
			if _, lives, err := pods.Lives(podUID); lives || err != nil {
				t.Fatalf("lives: %t, %v before it has a process", lives, err)
			}
			goes := filepath.Join(t.TempDir(), "goes")
			// The first process ends at once, so its pipe says when the last one has.
			program := exec.CommandContext(t.Context(), "sh", "-c", first, forks, goes, container)
			out, err := program.StdoutPipe()
			if err == nil {
				err = os.WriteFile(goes, nil, 0o600)
			}
			if err == nil {
				err = program.Start()
			}
			if err == nil {
				_, err = out.Read(make([]byte, 3))
			}
			must(t, err)
			for i := range 2000 {
				if _, lives, err := pods.Lives(podUID); !lives || err != nil {
					t.Errorf("lives: %t, %v in reading %d", lives, err, i)
					break
				}
			}
			must(t, os.Remove(goes))
			_, _ = out.Read(make([]byte, 1)) // until all have ended
			_ = program.Wait()
			for lives := true; lives; {
				_, lives, err = pods.Lives(podUID)
				must(t, err)
			}
			for folder := container; folder != root; folder = filepath.Dir(folder) {
				must(t, os.Remove(folder))
			}
			if _, lives, err := pods.Lives(podUID); lives || err != nil {
				t.Errorf("lives: %t, %v after the end of its cgroup", lives, err)
			}
		})
	}
}

// tree makes cgroups with the processes, as version 1 shows them. Below a folder, "" is its
// own.
func tree(t *testing.T, groups map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for group, processes := range groups {
		for folder := group; folder != "."; folder = filepath.Dir(folder) {
			write(t, filepath.Join(root, folder, "cgroup.procs"), "")
		}
		write(t, filepath.Join(root, group, "cgroup.procs"), processes)
	}
	write(t, filepath.Join(root, "cgroup.procs"), "1\n")
	return root
}

func write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	if before, err := os.ReadFile(name); err == nil && len(before) > 0 {
		return
	}
	must(t, os.WriteFile(name, []byte(text), 0o600))
}

func TestThePodsOfEachNameThatKubeletsUse(t *testing.T) {
	const underscored, staticUID = "0f7a1c1e_6b0e_4a53_9d1c_0d6a2f0c9b11", "0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct{ pod, folder, container, id string }{
		"cgroupfs, guaranteed":      {podUID, "kubepods/pod" + podUID, "c0ffee", "c0ffee"},
		"cgroupfs, burstable":       {podUID, "kubepods/burstable/pod" + podUID, "c0ffee", "c0ffee"},
		"below the kubelet's own":   {podUID, "kubelet/kubepods/besteffort/pod" + podUID, "c0ffee", "c0ffee"},
		"a static pod":              {staticUID, "kubepods/besteffort/pod" + staticUID, "c0ffee", "c0ffee"},
		"systemd, containerd":       {podUID, "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice", "cri-containerd-c0ffee.scope", "c0ffee"},
		"systemd, CRI-O":            {podUID, "kubepods.slice/kubepods-pod" + underscored + ".slice", "crio-c0ffee.scope", "c0ffee"},
		"systemd, CRI-O with crun":  {podUID, "kubepods.slice/kubepods-pod" + underscored + ".slice", "crio-c0ffee.scope/container", "c0ffee"},
		"systemd, kind":             {podUID, "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscored + ".slice", "cri-containerd-c0ffee.scope", "c0ffee"},
		"a process of no container": {podUID, "kubepods/pod" + podUID, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, map[string]string{
				"system.slice/sshd.service":            "40\n",
				filepath.Join(c.folder, c.container):   "4712\n4711\n",
				filepath.Join(c.folder, "ended"):       "",
				"kubepods/burstable/pod" + otherPodUID: "",
			})
			pods := cgroup.PodsIn(root)
			containers, err := pods.Containers()
			if diff := gocmp.Diff([]cgroup.Container{{PodUID: c.pod, ID: c.id, PID: 4711}}, containers); err != nil || diff != "" {
				t.Errorf("%v, containers (-want +got):\n%s", err, diff)
			}
			for uid, want := range map[string]bool{c.pod: true, otherPodUID: false, "22222222-2222-3333-4444-555555555555": false} {
				if _, lives, err := pods.Lives(uid); lives != want || err != nil {
					t.Errorf("pod %s lives: %t, %v; want %t", uid, lives, err, want)
				}
			}
		})
	}
}

// The kubelet makes the cgroup of a class with its first pod.
func TestAPodWhoseCgroupIsWhereNoOtherWas(t *testing.T) {
	root := tree(t, map[string]string{"kubepods/pod" + otherPodUID: "7\n"})
	pods := cgroup.PodsIn(root)
	if _, lives, err := pods.Lives(podUID); lives || err != nil {
		t.Fatalf("lives: %t, %v before it exists", lives, err)
	}
	write(t, filepath.Join(root, "kubepods/burstable/pod"+podUID+"/c0ffee/cgroup.procs"), "8\n")
	if pid, lives, err := pods.Lives(podUID); pid != 8 || !lives || err != nil {
		t.Errorf("process %d lives: %t, %v; want 8", pid, lives, err)
	}
}

// A container that manages the cgroups below its own can use any name.
func TestACgroupInAContainerIsOfNoOtherPod(t *testing.T) {
	root := tree(t, map[string]string{"kubepods/pod" + otherPodUID + "/c0ffee/pod" + podUID: "7\n"})
	pods := cgroup.PodsIn(root)
	if _, lives, err := pods.Lives(podUID); lives || err != nil {
		t.Errorf("lives: %t, %v", lives, err)
	}
	if _, lives, err := pods.Lives(otherPodUID); !lives || err != nil {
		t.Errorf("the pod of the container lives: %t, %v", lives, err)
	}
}

// What cannot be read may have a process.
func TestAPodIsUnknownIfItsCgroupCannotBeRead(t *testing.T) {
	root := tree(t, map[string]string{"kubepods/pod" + podUID: ""})
	must(t, os.Remove(filepath.Join(root, "kubepods/pod"+podUID, "cgroup.procs")))
	must(t, os.Mkdir(filepath.Join(root, "kubepods/pod"+podUID, "cgroup.procs"), 0o755))
	if _, lives, err := cgroup.PodsIn(root).Lives(podUID); err == nil {
		t.Errorf("lives: %t without an error", lives)
	}
	// A hierarchy that is not mounted any more looks as if all pods had ended.
	if _, lives, err := cgroup.PodsIn(t.TempDir()).Lives(podUID); err == nil {
		t.Errorf("lives: %t without an error, without cgroups", lives)
	}
	if containers, err := cgroup.PodsIn(t.TempDir()).Containers(); err == nil {
		t.Errorf("containers %v without an error, without cgroups", containers)
	}
}

func TestTheHierarchyOfPods(t *testing.T) {
	const v2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	mount := func(controllers string) string {
		return fmt.Sprintf("31 1 0:27 / /sys/fs/cgroup/%s rw - cgroup cgroup rw,%[1]s\n", controllers)
	}
	for name, c := range map[string]struct{ mounts, want string }{
		"version 2":           {v2, "sys/fs/cgroup"},
		"version 1":           {mount("cpu,cpuacct") + mount("devices") + mount("pids"), "sys/fs/cgroup/devices"},
		"both":                {v2 + mount("memory") + mount("devices"), "sys/fs/cgroup/devices"},
		"one without devices": {v2 + mount("memory"), ""},
		"none":                {"29 1 0:25 / / rw - ext4 /dev/vda1 rw\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			machine := t.TempDir()
			write(t, filepath.Join(machine, "proc/1/mountinfo"), c.mounts)
			write(t, filepath.Join(machine, "proc/1/root", cmp.Or(c.want, "sys/fs/cgroup"), "cgroup.procs"), "1\n")
			write(t, filepath.Join(machine, "proc/1/root", cmp.Or(c.want, "sys/fs/cgroup"), "kubepods/pod"+podUID, "cgroup.procs"), "7\n")
			pods, err := cgroup.FindPods(machine)
			if c.want == "" {
				require.Error(t, "FindPods", err, gpu.ErrNotSupported)
				return
			}
			must(t, err)
			if pid, _, err := pods.Lives(podUID); pid != 7 || err != nil {
				t.Errorf("process %d, %v; want 7", pid, err)
			}
		})
	}
	if _, err := cgroup.FindPods(t.TempDir()); err == nil {
		t.Error("no error without a process 1")
	}
}
