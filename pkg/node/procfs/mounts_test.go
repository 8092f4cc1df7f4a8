// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// mountTable returns lines of proc/PID/mountinfo from "device root mountpoint".
func mountTable(mounts ...string) string {
	var b strings.Builder
	for _, m := range mounts {
		fields := strings.Fields(m)
		b.WriteString("812 801 " + fields[0] + " " + fields[1] + " " + fields[2] + " rw,relatime - ext4 /dev/vda1 rw\n")
	}
	return b.String()
}

// self writes the mounts of the process that reads.
func self(t *testing.T, root string, mounts ...string) {
	t.Helper()
	dir := filepath.Join(root, "proc", "self")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mountTable(mounts...)), 0o644))
}

func TestAProcessWithAFileMounted(t *testing.T) {
	const (
		folder = "/var/lib/kubelet/plugins/driver/metadata"
		file   = "/disk/kubelet/plugins/driver/metadata/team_gpu/request/metadata.json"
		at     = "/var/run/kubernetes.io/x/metadata.json"
	)
	for name, c := range map[string]struct {
		mounts []string
		want   bool
	}{
		"the file of the claim":                   {[]string{"0:50 / /", "8:1 " + file + " " + at}, true},
		"a file that was replaced since":          {[]string{"8:1 " + file + "//deleted " + at}, true},
		"a claim whose name begins alike":         {[]string{"8:1 " + strings.Replace(file, "team_gpu", "team_gpu2", 1) + " " + at}, false},
		"a path alike on another file system":     {[]string{"0:50 " + file + " " + at}, false},
		"a path alike in a volume of the pod":     {[]string{"8:1 /disk/kubelet/pods/" + podUID + "/volumes/x" + file + " " + at}, false},
		"the folder of all claims, as the driver": {[]string{"8:1 /disk/kubelet/plugins /plugins"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			self(t, root, "0:40 / /", "0:41 /x /var/lib/kubelet/plugins", "8:1 /disk/kubelet/plugins /var/lib/kubelet/plugins", "8:2 / /var/lib/kubelet/plugins/driver2")
			process(t, root, 40, map[string]string{"mountinfo": mountTable(c.mounts...)})
			source, err := procfs.Root(root).Source(folder)
			must(t, err)
			sources := []procfs.Source{source.Below("team_other"), source.Below("team_gpu")}
			got, err := procfs.Root(root).Mounted(40, sources)
			if diff := cmp.Diff([]bool{false, c.want}, got); err != nil || diff != "" {
				t.Errorf("%v, mounted (-want +got):\n%s", err, diff)
			}
			if got, err := procfs.Root(root).Mounted(41, sources); err != nil || slices.Contains(got, true) {
				t.Errorf("%v, %v of a process that has ended", got, err)
			}
		})
	}
}

// A process that can mount can have any number of mounts. Those of the runtime are first.
func TestOnlyTheFirstMegabyteOfMountsIsRead(t *testing.T) {
	many := strings.Repeat(mountTable("0:60 /x /x"), 1<<20/len(mountTable("0:60 /x /x"))+1)
	of := mountTable("8:1 /plugins/team_gpu/f /f")
	for name, c := range map[string]struct {
		mounts string
		want   []bool
	}{
		"before": {of + many, []bool{true}},
		"after":  {many + of, []bool{false}},
	} {
		root := t.TempDir()
		self(t, root, "8:1 / /")
		process(t, root, 7, map[string]string{"mountinfo": c.mounts})
		source, err := procfs.Root(root).Source("/plugins/team_gpu")
		must(t, err)
		got, err := procfs.Root(root).Mounted(7, []procfs.Source{source})
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("a mount %s the others: %v, mounted (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestAFileMountedOfAFolderWithABlank(t *testing.T) {
	root := t.TempDir()
	self(t, root, "8:1 / /")
	process(t, root, 7, map[string]string{"mountinfo": mountTable(`8:1 /plug\040ins/f /f`)})
	source, err := procfs.Root(root).Source("/plug ins")
	must(t, err)
	got, err := procfs.Root(root).Mounted(7, []procfs.Source{source})
	if diff := cmp.Diff([]bool{true}, got); err != nil || diff != "" {
		t.Errorf("%v, mounted (-want +got):\n%s", err, diff)
	}
}

func TestSourceOfAFolderThatNoMountHas(t *testing.T) {
	root := t.TempDir()
	self(t, root, "8:1 / /somewhere")
	_, err := procfs.Root(root).Source("/else")
	require.Error(t, "Source", err, gpu.ErrNotFound)
}
