// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mountTable(mounts...)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func podsWith(root string, sources []procfs.Source) ([][]string, error) {
	pods, err := procfs.Root(root).Pods()
	if err != nil {
		return nil, err
	}
	return pods.With(sources)
}

func TestPodsWithAFileMounted(t *testing.T) {
	const (
		folder = "/var/lib/kubelet/plugins/driver/metadata"
		file   = "/disk/kubelet/plugins/driver/metadata/team_gpu/request/metadata.json"
		at     = "/var/run/kubernetes.io/x/metadata.json"
		other  = "11111111-2222-3333-4444-555555555555"
	)
	groups := func(pod string) string { return "0::/kubepods/pod" + pod + "/" + container + "\n" }
	for name, c := range map[string]struct {
		pod    string
		mounts []string
		want   []string
	}{
		"the file of the claim":                   {podUID, []string{"0:50 / /", "8:1 " + file + " " + at}, []string{podUID}},
		"a file that was replaced since":          {podUID, []string{"8:1 " + file + "//deleted " + at}, []string{podUID}},
		"a claim whose name begins alike":         {podUID, []string{"8:1 " + strings.Replace(file, "team_gpu", "team_gpu2", 1) + " " + at}, nil},
		"a path alike on another file system":     {podUID, []string{"0:50 " + file + " " + at}, nil},
		"a path alike in a volume of the pod":     {podUID, []string{"8:1 /disk/kubelet/pods/" + podUID + "/volumes/x" + file + " " + at}, nil},
		"the folder of all claims, as the driver": {podUID, []string{"8:1 /disk/kubelet/plugins /plugins"}, nil},
		"no container":                            {"", []string{"8:1 " + file + " " + at}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			self(t, root, "0:40 / /", "0:41 /x /var/lib/kubelet/plugins", "8:1 /disk/kubelet/plugins /var/lib/kubelet/plugins", "8:2 / /var/lib/kubelet/plugins/driver2")
			process(t, root, 40, map[string]string{"cgroup": groups(c.pod), "mountinfo": mountTable(c.mounts...)})
			process(t, root, 41, map[string]string{"cgroup": groups(other), "mountinfo": mountTable("0:60 / /")})
			process(t, root, 42, nil) // it has ended
			source, err := procfs.Root(root).Source(folder)
			if err != nil {
				t.Fatal(err)
			}
			got, err := podsWith(root, []procfs.Source{source.Below("team_other"), source.Below("team_gpu")})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{nil, c.want}, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
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
		want   [][]string
	}{
		"before": {of + many, [][]string{{podUID}}},
		"after":  {many + of, [][]string{nil}},
	} {
		root := t.TempDir()
		self(t, root, "8:1 / /")
		process(t, root, 7, map[string]string{"cgroup": "0::/kubepods/pod" + podUID + "/" + container + "\n", "mountinfo": c.mounts})
		source, err := procfs.Root(root).Source("/plugins/team_gpu")
		if err != nil {
			t.Fatal(err)
		}
		got, err := podsWith(root, []procfs.Source{source})
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("a mount %s the others: %v, pods (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestPodsWithAFileInAFolderWithABlank(t *testing.T) {
	root := t.TempDir()
	self(t, root, "8:1 / /")
	process(t, root, 7, map[string]string{"cgroup": "0::/kubepods/pod" + podUID + "/" + container + "\n", "mountinfo": mountTable(`8:1 /plug\040ins/f /f`)})
	source, err := procfs.Root(root).Source("/plug ins")
	if err != nil {
		t.Fatal(err)
	}
	got, err := podsWith(root, []procfs.Source{source})
	if diff := cmp.Diff([][]string{{podUID}}, got); err != nil || diff != "" {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
}

// A program in a container can have its own mounts, as one that starts containers.
func TestPodsWithAFileMountedByTheFirstProcessOnly(t *testing.T) {
	root := t.TempDir()
	self(t, root, "8:1 / /")
	for pid, mounts := range map[int]string{7: "8:1 /plugins/team_gpu/f /f", 30: "0:70 / /", 101: "0:70 / /"} {
		process(t, root, pid, map[string]string{"cgroup": "0::/kubepods/pod" + podUID + "/" + container + "\n", "mountinfo": mountTable(mounts)})
	}
	source, err := procfs.Root(root).Source("/plugins/team_gpu")
	if err != nil {
		t.Fatal(err)
	}
	got, err := podsWith(root, []procfs.Source{source})
	if diff := cmp.Diff([][]string{{podUID}}, got); err != nil || diff != "" {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
}

func TestSourceOfAFolderThatNoMountHas(t *testing.T) {
	root := t.TempDir()
	self(t, root, "8:1 / /somewhere")
	if _, err := procfs.Root(root).Source("/else"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("error %v, want %v", err, gpu.ErrNotFound)
	}
	if _, err := podsWith(t.TempDir(), nil); err == nil {
		t.Error("no error without a proc")
	}
}
