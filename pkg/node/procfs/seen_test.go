// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

func TestTheLastPodOfAnEndedProcessIsKnown(t *testing.T) {
	const pod = "0f0e0d0c-1111-2222-3333-444455556666"
	root := t.TempDir()
	add := func(pid int, cgroup string) {
		process(t, root, pid, map[string]string{"stat": stat("python", 1), "status": "Name:\tpython\nNSpid:\t7\n", "cgroup": "0::" + cgroup + "\n"})
	}
	add(7, "/kubepods.slice/kubepods-pod0f0e0d0c_1111_2222_3333_444455556666.slice/cri-containerd-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.scope")
	seen := &procfs.Seen{Root: procfs.Root(root)}
	if got := seen.PodOf(8); got != "" {
		t.Errorf("a process that never ran is of pod %q", got)
	}
	_, err := seen.Task(7)
	must(t, errors.Join(err, os.RemoveAll(filepath.Join(root, "proc", "7"))))
	if got := seen.PodOf(7); got != pod {
		t.Errorf("the process that has ended is of pod %q, want %q", got, pod)
	}
	// Others take its place, in the end.
	add(9, "/")
	for range 3000 {
		_, err := seen.Task(9)
		must(t, err)
	}
	if got := seen.PodOf(7); got != pod {
		t.Errorf("one process has taken all places, and %q is known", got)
	}
	add(7, "/")
	if got := seen.PodOf(7); got != "" {
		t.Errorf("the next process with the PID is of pod %q", got)
	}
}
