// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	debian = "ID=ubuntu\nID_LIKE=debian\n"
	fedora = "ID=fedora\n"
	mac    = ""
)

// machine is a machine with the programs of its PATH only.
type machine struct {
	release  string // the text of its os-release
	programs map[string]string
}

// newMachine has everything that the targets need.
func newMachine(release string) machine {
	programs := map[string]string{
		"uname": "echo Linux", "id": "echo 0", "make": "echo GNU Make 4.3", "git": ":", "go": "echo go1.99.0",
		"gcc": "while read -r _; do :; done", "g++": ":", "python3": ":", "chromium": ":", "busybox": ":", "conntrack": ":", "ip": ":", "iptables": ":",
		"nsenter": ":", "runc": ":",
	}
	if release == mac {
		programs["uname"] = "echo Darwin"
	}
	if release == debian {
		programs["apt-get"] = `echo "apt-get $*"`
	}
	return machine{release, programs}
}

// run runs needs.sh there and returns its output on both streams, and its exit status.
func (m machine) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	folder := t.TempDir()
	for name, body := range m.programs {
		write(t, filepath.Join(folder, name), "#!/bin/bash\n"+body+"\n", 0o755)
	}
	release := filepath.Join(t.TempDir(), "os-release")
	write(t, release, m.release, 0o644)
	cmd := exec.CommandContext(t.Context(), "/bin/bash", append([]string{"./needs.sh"}, args...)...)
	cmd.Env = []string{"PATH=" + folder, "OS_RELEASE=" + release, "SBIN=", "SUDO_USER=" + os.Getenv("SUDO_USER")}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestAMachineWithEverything(t *testing.T) {
	out, status := newMachine(debian).run(t)
	if status != 0 || strings.Contains(out, "missing") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	for _, need := range []string{"make", "git", "go", "cc", "cxx", "python", "root", "cluster", "chromium"} {
		if !regexp.MustCompile(`(?m)^` + need + ` +ok `).MatchString(out) {
			t.Errorf("no line for %s:\n%s", need, out)
		}
	}
	if out, status := newMachine(fedora).run(t, "go", "git", "root", "cluster"); status != 0 || out != "" {
		t.Errorf("exit status %d, want 0 and silence:\n%s", status, out)
	}
}

func TestAMissingToolIsNamedWithTheWayToGetIt(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine machine
		without string // the program that it lacks
		with    map[string]string
		need    string
		want    []string
	}{
		{"no compiler on Debian", newMachine(debian), "gcc", nil, "cc", []string{"a C compiler (gcc)", "apt-get install --no-install-recommends gcc libc6-dev"}},
		{"a compiler without headers", newMachine(fedora), "", map[string]string{"gcc": "exit 1"}, "cc", []string{"headers of the C library", "glibc-devel"}},
		{"no Go", newMachine(debian), "go", nil, "go", []string{"Go 1.2", "https://go.dev/doc/install"}},
		{"a Go that downloads no other", newMachine(fedora), "", map[string]string{"go": "echo go1.20.4"}, "go", []string{"this is 1.20.4"}},
		{"the make of a Mac", newMachine(mac), "", map[string]string{"make": "echo GNU Make 3.81"}, "make", []string{"GNU make 4: this is 3.81", "brew install make"}},
		{"no root", newMachine(fedora), "", map[string]string{"id": "echo 1000"}, "root", []string{"needs root: ", "run it with sudo, or run `make unit`"}},
		{"no Linux", newMachine(mac), "", nil, "root", []string{"needs Linux: ", "a Linux virtual machine (docs/dev/first-change.md)"}},
		{"no runc on Fedora", newMachine(fedora), "runc", nil, "cluster", []string{"programs of a node: runc", "sudo dnf install busybox conntrack-tools iproute"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			delete(test.machine.programs, test.without)
			for name, body := range test.with {
				test.machine.programs[name] = body
			}
			out, status := test.machine.run(t, test.need)
			if status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			table, status := test.machine.run(t)
			if status != 1 {
				t.Errorf("exit status %d of the table, want 1", status)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("the answer has no %q:\n%s", want, out)
				}
				if want = strings.TrimPrefix(want, "needs "); !strings.Contains(table, want) {
					t.Errorf("the table has no %q:\n%s", want, table)
				}
			}
			if !strings.Contains(table, "\n"+test.need+" is missing, for ") {
				t.Errorf("the table does not say which targets need it:\n%s", table)
			}
		})
	}
}

func TestDebiansPackagesAreInstalledForRootOnly(t *testing.T) {
	m := newMachine(debian)
	delete(m.programs, "gcc")
	out, status := m.run(t, "--install", "cc")
	if status != 0 || !strings.Contains(out, "apt-get install -y -qq --no-install-recommends gcc libc6-dev\n") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	m.programs["id"] = "echo 1000"
	out, status = m.run(t, "--install", "cc")
	if status != 1 || strings.Contains(out, "-y -qq") {
		t.Errorf("not as root, exit status %d:\n%s", status, out)
	}
	delete(m.programs, "runc")
	if out, status = m.run(t, "cluster"); status != 0 {
		t.Errorf("the cluster installs its packages itself, but exit status %d:\n%s", status, out)
	}
}

// The list of the cluster's programs is in test/cluster too, which another module
// cannot import.
func TestTheProgramsOfANodeAreTheClusters(t *testing.T) {
	source, err := os.ReadFile("../../test/cluster/internal/host/packages.go")
	if err != nil {
		t.Fatal(err)
	}
	var want, packages []string
	for _, m := range regexp.MustCompile(`(?m)^\t\{"([a-z]+)", "([a-z0-9-]+)"\},$`).FindAllStringSubmatch(string(source), -1) {
		want, packages = append(want, m[1]), append(packages, m[2])
	}
	script, err := os.ReadFile("needs.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"for program in " + strings.Join(want, " ") + ";", "cluster:debian) echo " + strings.Join(packages, " ") + " ;;"} {
		if !strings.Contains(string(script), text) {
			t.Errorf("needs.sh has no %q", text)
		}
	}
}
