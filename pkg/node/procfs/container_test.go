// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestContainersAreTheNamesInTheMountsOfTheirLastMessages(t *testing.T) {
	mount := func(root, at string) string {
		return "812 801 254:1 " + root + " " + at + " rw,relatime - ext4 /dev/vda1 rw\n"
	}
	const other = "11111111-2222-3333-4444-555555555555"
	hosts := mount("/var/lib/kubelet/pods/"+podUID+"/etc-hosts", "/etc/hosts")
	volume := mount("/var/lib/kubelet/pods/"+podUID+"/volumes/kubernetes.io~empty-dir/containers", "/containers")
	message := func(name string) string { return "/pods/" + podUID + "/containers/" + name + "/1f2e3d4c" }
	for name, c := range map[string]struct {
		mounts string
		want   []string
	}{
		"the kubelet's folder on the root": {hosts + volume + mount("/var/lib/kubelet"+message("main"), "/dev/termination-log"), []string{"main"}},
		"on a disk of its own":             {mount(message("main-2"), "/message"), []string{"main-2"}},
		"another path of the message":      {mount("/data/kubelet"+message("sidecar"), "/tmp/m"), []string{"sidecar"}},
		"several, one of them twice":       {mount(message("a"), "/a") + mount(message("b"), "/b") + mount(message("a"), "/c"), []string{"a", "b"}},
		"of another pod":                   {mount("/var/lib/kubelet/pods/"+other+"/containers/main/1f2e3d4c", "/x"), nil},
		"the folder of all containers":     {mount("/var/lib/kubelet/pods/"+podUID+"/containers/main", "/x"), nil},
		"a file that the kubelet has not made": {
			mount(message("main")+"/x", "/x") + mount("/pods/"+podUID+"/containers/main/message", "/y") + mount("/pods/"+podUID+"/containers/main/1f2e3d4", "/z"), nil,
		},
		"a folder in a volume":             {mount("/var/lib/kubelet/pods/"+podUID+"/volumes/kubernetes.io~empty-dir/v"+message("evil"), "/x"), nil},
		"a name that no container has":     {mount(message(strings.Repeat("x", 64)), "/x") + mount(message(`side\040car`), "/y") + mount(message("Main"), "/z"), nil},
		"a name that is not text":          {mount(message("\xff\xfe"), "/x"), nil},
		"a process with mounts of its own": {mount("/", "/"), nil},
		"beyond the first megabyte":        {strings.Repeat(hosts, 1<<20/len(hosts)+1) + mount(message("main"), "/x"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			process(t, root, 4711, map[string]string{"mountinfo": c.mounts})
			if got, err := procfs.Root(root).Containers(4711, podUID); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("containers %q, %v; want %q", got, err, c.want)
			}
		})
	}
	_, err := procfs.Root(t.TempDir()).Containers(4711, podUID)
	require.Error(t, "of a process that has ended", err, fs.ErrNotExist)
}
