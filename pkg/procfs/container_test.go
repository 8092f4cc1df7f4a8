// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

func TestContainerIsTheNameInTheMountOfItsLastMessage(t *testing.T) {
	mount := func(root, at string) string {
		return "812 801 254:1 " + root + " " + at + " rw,relatime - ext4 /dev/vda1 rw\n"
	}
	const other = "11111111-2222-3333-4444-555555555555"
	hosts := mount("/var/lib/kubelet/pods/"+podUID+"/etc-hosts", "/etc/hosts")
	volume := mount("/var/lib/kubelet/pods/"+podUID+"/volumes/kubernetes.io~empty-dir/containers", "/containers")
	for name, c := range map[string]struct{ mounts, want string }{
		"the kubelet's folder on the root": {hosts + volume + mount("/var/lib/kubelet/pods/"+podUID+"/containers/main/1f2e3d4c", "/dev/termination-log"), "main"},
		"on a disk of its own":             {mount("/pods/"+podUID+"/containers/main-2/1f2e3d4c", "/message"), "main-2"},
		"another path of the message":      {mount("/data/kubelet/pods/"+podUID+"/containers/side\\040car/1f2e3d4c", "/tmp/m"), "side car"},
		"of another pod":                   {mount("/var/lib/kubelet/pods/"+other+"/containers/main/1f2e3d4c", "/x"), ""},
		"the folder of all containers":     {mount("/var/lib/kubelet/pods/"+podUID+"/containers/main", "/x"), ""},
		"a name that no container has":     {mount("/pods/"+podUID+"/containers/"+strings.Repeat("x", 64)+"/1f2e3d4c", "/x"), ""},
		"a process with mounts of its own": {mount("/", "/"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			process(t, root, 4711, map[string]string{"mountinfo": c.mounts})
			if got, err := procfs.Root(root).Container(4711, podUID); err != nil || got != c.want {
				t.Errorf("container %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := procfs.Root(t.TempDir()).Container(4711, podUID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a process that has ended: %v, want %v", err, fs.ErrNotExist)
	}
}
