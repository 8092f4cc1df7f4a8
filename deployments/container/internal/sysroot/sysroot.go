// SPDX-License-Identifier: Apache-2.0

// Package sysroot unpacks Debian's C library of an architecture into a folder. Programs
// of a release are compiled and linked against it, and images get their C library from it.
//
// It takes the newest packages of the sources that apt has on this machine, which need not
// be the installed ones. It changes neither the machine's packages nor apt's lists, and needs
// no root: apt works on folders of its own.
//
// Out of scope: the cross compiler, which must be installed.
package sysroot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Architecture is an architecture of the images.
type Architecture struct {
	// Debian is the name for packages. Go has the same.
	Debian string
	// Triplet is the prefix of the cross compiler.
	Triplet string
}

// Architectures returns the architectures of the images.
func Architectures() []Architecture {
	return []Architecture{{"amd64", "x86_64-linux-gnu"}, {"arm64", "aarch64-linux-gnu"}}
}

// Layout of the folder that Make makes.
const (
	// Root has the files of the packages, and their database.
	Root = "root"
	// compiler is the prefix of the name of the compiler; the architecture follows.
	compiler = "cc-"
)

// Make replaces the folder. It gets the packages, in the folder "root", and a compiler
// "cc-ARCHITECTURE" that uses them.
func Make(ctx context.Context, a Architecture, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	archives, err := download(ctx, a, filepath.Join(dir, "apt"))
	if err != nil {
		return err
	}
	if err := Unpack(ctx, filepath.Join(dir, Root), archives...); err != nil {
		return err
	}
	return a.writeCompiler(dir)
}

// download downloads the packages for the architecture into the folder.
func download(ctx context.Context, a Architecture, dir string) ([]string, error) {
	for _, folder := range []string{"lists/partial", "cache/archives/partial", "archives"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "status"), nil, 0o644); err != nil {
		return nil, err
	}
	apt := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{
			"--quiet=2", "--option", "APT::Architecture=" + a.Debian, "--option", "APT::Architectures=" + a.Debian,
			"--option", "Dir::State::Lists=" + filepath.Join(dir, "lists"), "--option", "Dir::Cache=" + filepath.Join(dir, "cache"),
			"--option", "Dir::State::status=" + filepath.Join(dir, "status"), "--option", "Acquire::Languages=none",
			// A sandbox's user cannot write into a folder of ours.
			"--option", "Debug::NoLocking=1", "--option", "APT::Sandbox::User=root",
		}, args...)...)
		cmd.Dir = filepath.Join(dir, "archives")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
		}
		return nil
	}
	if err := apt("update"); err != nil {
		return nil, err
	}
	// The headers of libc6-dev include the kernel's.
	if err := apt("download", "base-files", "libc6", "libc6-dev", "libgcc-s1", "linux-libc-dev"); err != nil {
		return nil, err
	}
	libgcc, err := filepath.Glob(filepath.Join(dir, "archives", "libgcc-s1_*.deb"))
	if err != nil || len(libgcc) != 1 {
		return nil, fmt.Errorf("apt-get downloaded %q, want one archive of libgcc-s1: %w", libgcc, err)
	}
	depends, err := dpkgDeb(ctx, "--field", libgcc[0], "Depends")
	if err != nil {
		return nil, err
	}
	// The copyright file of libgcc-s1 is in the package of the compiler's version.
	for dependency := range strings.SplitSeq(depends, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(dependency), " "); strings.HasPrefix(name, "gcc-") {
			if err := apt("download", name); err != nil {
				return nil, err
			}
		}
	}
	return filepath.Glob(filepath.Join(dir, "archives", "*.deb"))
}

// Unpack unpacks archives of packages into a folder, and writes the database that
// dpkg-query reads. It runs none of their scripts.
func Unpack(ctx context.Context, dir string, archives ...string) error {
	var status bytes.Buffer
	info := filepath.Join(dir, "var/lib/dpkg/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	// The format in which names of lists contain the architecture.
	if err := os.WriteFile(filepath.Join(info, "format"), []byte("1\n"), 0o644); err != nil {
		return err
	}
	for _, file := range archives {
		if _, err := dpkgDeb(ctx, "--extract", file, dir); err != nil {
			return err
		}
		control, err := dpkgDeb(ctx, "--field", file)
		if err != nil {
			return err
		}
		fields, err := dpkgDeb(ctx, "--show", "--showformat", "${Package} ${Architecture} ${Multi-Arch}", file)
		if err != nil {
			return err
		}
		contents, err := dpkgDeb(ctx, "--contents", file)
		if err != nil {
			return err
		}
		name, rest, _ := strings.Cut(fields, " ")
		architecture, multi, _ := strings.Cut(rest, " ")
		if multi == "same" {
			name += ":" + architecture
		}
		fmt.Fprintf(&status, "%s\nStatus: install ok installed\n\n", strings.TrimSpace(control))
		if err := os.WriteFile(filepath.Join(info, name+".list"), []byte(list(contents)), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(relink(dir), os.WriteFile(filepath.Join(dir, "var/lib/dpkg/status"), status.Bytes(), 0o644))
}

// relink makes absolute links relative, so that they lead to a file in the folder. The
// linker of another root would find none, and link the static library instead.
func relink(dir string) error {
	return filepath.WalkDir(dir, func(link string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSymlink {
			return err
		}
		target, err := os.Readlink(link)
		if err != nil || !filepath.IsAbs(target) {
			return err
		}
		relative, err := filepath.Rel(filepath.Dir(link), filepath.Join(dir, target))
		if err != nil {
			return err
		}
		return errors.Join(os.Remove(link), os.Symlink(relative, link))
	})
}

func dpkgDeb(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "dpkg-deb", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("dpkg-deb %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// list turns the output of dpkg-deb --contents into a list of files of dpkg.
func list(contents string) string {
	var out strings.Builder
	for line := range strings.Lines(contents) {
		_, name, ok := strings.Cut(line, " ./")
		name, _, _ = strings.Cut(strings.TrimSpace(name), " -> ")
		if ok && name != "" {
			out.WriteString("/" + strings.TrimSuffix(name, "/") + "\n")
		}
	}
	return out.String()
}

// writeCompiler writes a compiler that prefers the folder's headers and libraries. The cross
// compiler has its own, which get security fixes later. The name of the compiler contains no
// folder: Go's build IDs depend on the name.
func (a Architecture) writeCompiler(dir string) error {
	script := `#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/` + Root + `
exec ` + a.Triplet + `-gcc --sysroot="$root" -B"$root/usr/lib/` + a.Triplet + `" \
  -isystem "$root/usr/include/` + a.Triplet + `" -isystem "$root/usr/include" "$@"
`
	return os.WriteFile(filepath.Join(dir, compiler+a.Debian), []byte(script), 0o755)
}
