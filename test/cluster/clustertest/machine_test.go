// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/moby/sys/mountinfo"
)

// machine is what clusters could leave on a machine, a line each.
type machine struct {
	lines []string
	// alone is false where clusters of others were up, which come and go
	// while a test runs.
	alone bool
}

func lookAtMachine(t *testing.T, ours ...string) machine {
	t.Helper()
	lines := slices.Concat(
		mounts(t), links(t), cgroups(t), processes(t), rules(t), sysctls(t),
		entries(t, "namespace", "/run/netns"),
		entries(t, "log link", "/var/log/containers"),
		entries(t, "CNI result", "/var/lib/cni/results"),
		entries(t, "CRI-O", "/run/crio"),
		entries(t, "CRI-O", "/var/lib/crio"),
		entries(t, "images", "/run/containers"),
		entries(t, "images", "/var/lib/containers"),
		entries(t, "state", cluster.StateRoot),
		entries(t, "device plugin", "/var/lib/kubelet/device-plugins"),
	)
	slices.Sort(lines)
	others, err := host.InterfacesWithPrefix("gpudra-")
	must(t, err)
	for _, name := range ours {
		others = slices.DeleteFunc(others, func(veth string) bool { return veth == vethOf(t, name) })
	}
	return machine{lines: slices.Compact(lines), alone: len(others) == 0}
}

// assertNothingLeft checks that nothing of our clusters remains. If we are alone,
// it also checks that the machine is unchanged.
func assertNothingLeft(t *testing.T, before machine, ours ...string) {
	t.Helper()
	after := lookAtMachine(t, ours...)
	for _, line := range after.lines {
		for _, name := range ours {
			for _, mark := range []string{"gpu-dra-" + name, filepath.Join(cluster.StateRoot, name), vethOf(t, name)} {
				if strings.Contains(line, mark) {
					t.Errorf("left behind: %s", line)
				}
			}
		}
	}
	if before.alone && after.alone {
		if diff := cmp.Diff(before.lines, after.lines); diff != "" {
			t.Errorf("the machine is not as it was (-before +after):\n%s", diff)
		}
	}
}

func mounts(t *testing.T) []string {
	t.Helper()
	all, err := mountinfo.GetMounts(nil)
	must(t, err)
	var lines []string
	for _, m := range all {
		lines = append(lines, "mount "+m.Mountpoint)
		// A mount that another one hides cannot be unmounted by its path.
		if slices.ContainsFunc(all, func(other *mountinfo.Info) bool {
			return other.Parent == m.Parent && strings.HasPrefix(m.Mountpoint, other.Mountpoint+"/")
		}) {
			lines = append(lines, "hidden mount "+m.Mountpoint)
		}
	}
	return lines
}

// assertMountsInItsFolder checks that a cluster has changed the machine's mounts in its folder only.
func assertMountsInItsFolder(t *testing.T, before machine, name string) {
	t.Helper()
	folder := regexp.MustCompile("^mount " + filepath.Join(cluster.StateRoot, name) + `(\.2)?(/|$)`)
	for _, line := range mounts(t) {
		if !slices.Contains(before.lines, line) && !folder.MatchString(line) {
			t.Errorf("mounted on the machine: %s", line)
		}
	}
}

func links(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	must(t, err)
	var lines []string
	for _, i := range all {
		lines = append(lines, "interface "+i.Name)
	}
	return lines
}

func cgroups(t *testing.T) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a cgroup may go away while we walk
		}
		if name := entry.Name(); entry.IsDir() && (strings.Contains(name, "gpu-dra") || strings.Contains(name, "kubepods")) {
			lines = append(lines, "cgroup "+path)
		}
		return nil
	})
	must(t, err)
	return lines
}

// processes lists the running programs that a cluster started: those in a
// cluster's cgroup or with a cluster's directory in their arguments.
func processes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var lines []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue // it has ended, and its parent may not have noticed yet
		}
		arguments := strings.ReplaceAll(string(data), "\x00", " ")
		cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err != nil {
			continue
		}
		// A clone of this repository has such a name in its paths too.
		if strings.Contains(string(cgroup), "/gpu-dra-") || strings.Contains(arguments, cluster.StateRoot) {
			lines = append(lines, "process "+arguments+strings.ReplaceAll(string(cgroup), "\n", " "))
		}
	}
	return lines
}

func entries(t *testing.T, what, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	must(t, err)
	var lines []string
	for _, entry := range all {
		lines = append(lines, what+" "+filepath.Join(dir, entry.Name()))
	}
	return lines
}

func rules(t *testing.T) []string {
	t.Helper()
	if _, err := host.LookPath("iptables-save"); err != nil {
		return nil
	}
	out, err := host.Run(t.Context(), "iptables-save")
	must(t, err)
	var lines []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
			lines = append(lines, "iptables "+strings.TrimSpace(line))
		}
	}
	return lines
}

func sysctls(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		must(t, err)
		lines = append(lines, "setting "+name+"="+strings.TrimSpace(string(data)))
	}
	return lines
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
