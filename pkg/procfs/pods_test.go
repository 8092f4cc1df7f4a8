// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

const otherPod = "11111111-2222-3333-4444-555555555555"

// inState returns proc/PID/stat of a process in the state, with a number of
// threads.
func inState(state string, threads int) string {
	return fmt.Sprintf("4711 (a) b) %s 1 4711 4711 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 7 1000 10 18446744073709551615 0 0\n", state, threads)
}

func livingPods(root string) (map[string]int, error) {
	pods, err := procfs.Root(root).Pods()
	return pods.Living(), err
}

func TestPodsWithALivingProcess(t *testing.T) {
	inPod := "0::/kubepods/burstable/pod" + podUID + "/" + container + "\n"
	for name, c := range map[string]struct {
		cgroup, stat string
		want         map[string]int
	}{
		"an idle process":                           {inPod, inState("S", 1), map[string]int{podUID: 4711}},
		"a process that waits in a driver":          {inPod, inState("D", 1), map[string]int{podUID: 4711}},
		"a frozen process":                          {inPod, inState("T", 1), map[string]int{podUID: 4711}},
		"a process that has ended":                  {inPod, inState("Z", 1), map[string]int{}},
		"a process that has ended, without threads": {inPod, inState("Z", 0), map[string]int{}},
		"a process whose first thread has ended":    {inPod, inState("Z", 2), map[string]int{podUID: 4711}},
		"a process of the host":                     {"0::/system.slice/sshd.service\n", inState("S", 1), map[string]int{}},
		"cgroups of version 1":                      {"9:memory:/kubepods/pod" + podUID + "/" + container + "\n0::/\n", inState("S", 1), map[string]int{podUID: 4711}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			process(t, root, 4711, map[string]string{"cgroup": c.cgroup, "stat": c.stat})
			got, err := livingPods(root)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v, pods (-want +got):\n%s", err, diff)
			}
		})
	}
}

// More processes than one batch has, and other files.
func TestPodsOfManyProcesses(t *testing.T) {
	root := t.TempDir()
	for pid := 1; pid <= 300; pid++ {
		cgroup := "0::/system.slice/a.service\n"
		if pid == 300 {
			cgroup = "0::/kubepods/pod" + otherPod + "/x\n"
		}
		process(t, root, pid, map[string]string{"cgroup": cgroup, "stat": inState("S", 1)})
	}
	if err := os.MkdirAll(filepath.Join(root, "proc", "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A process that ends between the list and its turn.
	if err := os.Mkdir(filepath.Join(root, "proc", "301"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := livingPods(root)
	if diff := cmp.Diff(map[string]int{otherPod: 300}, got); err != nil || diff != "" {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
}

// kernelParent writes the parent of the kernel's threads.
func kernelParent(t *testing.T, root string, flags uint64, children string) {
	t.Helper()
	process(t, root, 2, map[string]string{"cgroup": "0::/\n", "stat": fmt.Sprintf("2 (kthreadd) S 0 0 0 0 -1 %d 1 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n", flags)})
	dir := filepath.Join(root, "proc", "2", "task", "2")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "children"), []byte(children), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestThreadsOfTheKernelAreNotRead(t *testing.T) {
	const ofUsers = 4194560
	for name, c := range map[string]struct {
		flags uint64
		want  map[string]int
	}{
		"the host": {ofUsers | 0x00200000, map[string]int{}},
		"a PID namespace in which 2 is any process": {ofUsers, map[string]int{podUID: 7}},
	} {
		root := t.TempDir()
		kernelParent(t, root, c.flags, "3 7 ")
		process(t, root, 7, map[string]string{"cgroup": "0::/kubepods/pod" + podUID + "/x\n", "stat": inState("S", 1)})
		got, err := livingPods(root)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, pods (-want +got):\n%s", name, err, diff)
		}
	}
}

// A thread of the kernel ends while the processes are read, and a process gets its PID.
func TestAProcessWithThePIDOfAThreadThatHasEnded(t *testing.T) {
	root := t.TempDir()
	kernelParent(t, root, 0x00200000, "3 7")
	process(t, root, 7, map[string]string{"cgroup": "0::/kubepods/pod" + podUID + "/x\n", "stat": inState("S", 1)})
	process(t, root, 9, nil)
	// The pass waits here until the file is written.
	meanwhile := filepath.Join(root, "proc", "9", "cgroup")
	if err := unix.Mkfifo(meanwhile, 0o644); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(meanwhile, os.O_WRONLY, 0)
		if err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(root, "proc", "2", "task", "2", "children"), []byte("3"), 0o644), file.Close())
		}
		written <- err
	}()
	got, err := livingPods(root)
	if err := errors.Join(err, <-written); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{podUID: 7}, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// A process that cannot be read may be of any pod.
func TestPodsAreUnknownIfAProcessCannotBeRead(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, map[string]string{"stat": inState("S", 1)})
	if err := os.Mkdir(filepath.Join(root, "proc", "1", "cgroup"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := livingPods(root); err == nil {
		t.Errorf("pods %v without an error", got)
	}
	if got, err := livingPods(filepath.Join(root, "nowhere")); err == nil {
		t.Errorf("pods %v of a machine without proc", got)
	}
}

func TestAnAgentWithoutTheHostsPIDNamespaceSeesNoPods(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup string
		want   bool
	}{
		"the host's init":                          {"0::/init.scope\n", true},
		"the first process of the agent's own pod": {"0::/kubepods/pod" + podUID + "/" + container + "\n", false},
	} {
		root := t.TempDir()
		process(t, root, 1, map[string]string{"cgroup": c.cgroup})
		got, err := procfs.Root(root).SeesPods()
		if err != nil || got != c.want {
			t.Errorf("process 1 is %s: sees pods: %t, %v; want %t", name, got, err, c.want)
		}
	}
}
