package clustertest

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/moby/sys/mountinfo"
)

// machine is what clusters could leave on a machine, a line each.
type machine []string

// lookAtMachine lists everything but what clusters other than ours have: other
// tests may run at the same time.
func lookAtMachine(t *testing.T, ours ...string) machine {
	t.Helper()
	var m machine
	m = append(m, mounts(t)...)
	m = append(m, links(t)...)
	m = append(m, cgroups(t)...)
	m = append(m, processes(t)...)
	m = append(m, entries(t, "namespace", "/run/netns")...)
	m = append(m, entries(t, "log link", "/var/log/containers")...)
	m = append(m, entries(t, "CNI result", "/var/lib/cni/results")...)
	m = append(m, entries(t, "state", "/var/lib/gpu-dra-cluster")...)
	m = append(m, rules(t)...)
	others := otherClusters(t, ours)
	if len(others) == 0 {
		m = append(m, sysctls(t)...)
		m = append(m, entries(t, "device plugin", "/var/lib/kubelet/device-plugins")...)
	}
	m = slices.DeleteFunc(m, func(line string) bool {
		return len(others) > 0 && line == "mount /run/netns" ||
			slices.ContainsFunc(others, func(name string) bool { return strings.Contains(line, name) })
	})
	slices.Sort(m)
	return slices.Compact(m)
}

// otherClusters gives what marks the lines of clusters that are not ours.
func otherClusters(t *testing.T, ours []string) []string {
	t.Helper()
	var marks []string
	namespaces, err := host.NetNSWithPrefix("gpu-dra-")
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces {
		name := strings.TrimPrefix(namespace, "gpu-dra-")
		if !slices.Contains(ours, name) {
			marks = append(marks, namespace, "gpu-dra-cluster/"+name, vethOf(t, name))
		}
	}
	return marks
}

func mounts(t *testing.T) []string {
	t.Helper()
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range all {
		lines = append(lines, "mount "+m.Mountpoint)
	}
	return lines
}

func links(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// processes lists the running programs that a cluster could have started.
func processes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		line := strings.ReplaceAll(string(data), "\x00", " ")
		program, _, _ := strings.Cut(line, " ")
		switch filepath.Base(program) {
		case "etcd", "containerd", "containerd-shim-runc-v2", "runc", "kube-apiserver", "kube-controller-manager",
			"kube-scheduler", "kube-proxy", "kubelet", "pause", "probe":
			cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
			if err == nil {
				lines = append(lines, "process "+line+strings.ReplaceAll(string(cgroup), "\n", " "))
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "setting "+name+"="+strings.TrimSpace(string(data)))
	}
	return lines
}

func assertNothingLeft(t *testing.T, before machine, ours ...string) {
	t.Helper()
	if diff := cmp.Diff(before, lookAtMachine(t, ours...)); diff != "" {
		t.Errorf("the machine is not as it was (-before +after):\n%s", diff)
	}
}
