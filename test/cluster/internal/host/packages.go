// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// programs that a node needs, and the Debian packages that hold them.
var programs = []struct{ program, pkg string }{
	{"busybox", "busybox-static"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{"iptables", "iptables"},
	{"nsenter", "util-linux"},
	{"runc", "runc"},
}

// MissingPackages names the Debian packages that must be installed for a node. Each of the
// others is a program that is in the package of its name.
func MissingPackages(others ...string) []string {
	var missing []string
	for _, p := range programs {
		path, err := LookPath(p.program)
		if err != nil || p.program == "busybox" && !isStatic(path) {
			missing = append(missing, p.pkg)
		}
	}
	for _, program := range others {
		if _, err := LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	slices.Sort(missing)
	return missing
}

// isStatic reports whether a program runs without shared libraries.
func isStatic(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // only read
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// InstallPackages installs Debian packages with apt-get.
func InstallPackages(ctx context.Context, packages []string) error {
	apt, err := LookPath("apt-get")
	if err != nil {
		return fmt.Errorf("install %s: %w: this machine does not run Debian; install the packages of these programs yourself", strings.Join(packages, " "), err)
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	// Package lists may be missing or old, so that only an update helps.
	if err := runApt(ctx, apt, install...); err == nil {
		return nil
	}
	if err := runApt(ctx, apt, "update"); err != nil {
		return err
	}
	return runApt(ctx, apt, install...)
}

func runApt(ctx context.Context, apt string, args ...string) error {
	cmd := exec.CommandContext(ctx, apt, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "PATH="+Path())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
