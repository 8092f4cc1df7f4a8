// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

func TestOpenersAreTheProcessesWithAFileOpen(t *testing.T) {
	root := t.TempDir()
	opens := func(pid int, files map[string]string, paths ...string) {
		t.Helper()
		process(t, root, pid, files)
		for i, path := range append([]string{"/dev/null", "socket:[17]"}, paths...) {
			link := filepath.Join(root, "proc", strconv.Itoa(pid), "fd", strconv.Itoa(i))
			must(t, os.MkdirAll(filepath.Dir(link), 0o755))
			must(t, os.Symlink(path, link))
		}
	}
	files := func(name string) map[string]string {
		return map[string]string{"stat": stat(name, 5), "status": "Name:\t" + name + "\nNSpid:\t7\n", "cgroup": "0::/\n"}
	}
	opens(11, files("train"), "/dev/nvidia-caps/nvidia-cap12")
	opens(12, files("other"), "/dev/nvidia-caps/nvidia-cap120", "/dev/nvidia0")
	opens(13, files("driver"), "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap21")
	opens(14, map[string]string{"stat": "damaged"}, "/dev/nvidia-caps/nvidia-cap21")
	opens(15, nil, "/dev/nvidia-caps/nvidia-cap12") // ends meanwhile
	opens(os.Getpid(), files("agent"), "/dev/nvidia-caps/nvidia-cap12")
	got, err := procfs.Root(root).Openers([]string{"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap21"})
	want := map[int]gpu.Task{11: {Command: "train", Started: 5, OnHost: true}, 13: {Command: "driver", Started: 5, OnHost: true}, 14: {}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, openers (-want +got):\n%s", err, diff)
	}
}
