// SPDX-License-Identifier: Apache-2.0

// Package debian finds the Debian package of a file. The file is on this machine, or in
// a folder with unpacked packages of another architecture. It also finds the terms of the
// package's distribution and the record that security scanners read.
//
// Out of scope: getting packages, see internal/sysroot; other distributions.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// System is an installed Debian: this machine, or a folder with unpacked packages
// and their database, as internal/sysroot makes it.
type System struct {
	// Root is the folder. Empty is this machine.
	Root string
}

// Path returns the file of this machine that has the name in the system.
func (s System) Path(name string) string { return filepath.Join("/", s.Root, name) }

// OSRelease returns the file that names the distribution. Scanners read there whose
// advisories apply.
func (s System) OSRelease() string { return s.Path("usr/lib/os-release") }

// Package is an installed package of Debian.
type Package struct {
	Name, Version, Architecture string
	// Source is the package that it is built from.
	Source string
	// Distribution is its name, such as debian, and Release its version, such as 12.
	Distribution, Release string
}

// URL returns the package URL (purl) by which scanners find advisories.
func (p Package) URL() string {
	return "pkg:deb/" + p.Distribution + "/" + p.Name + "@" + strings.ReplaceAll(p.Version, "+", "%2B") +
		"?arch=" + p.Architecture + "&distro=" + p.Distribution + "-" + p.Release
}

// Files returns the copyright file and the scanner's record of each file's package.
// The result is by path in the image; files of the same package share its entries.
// The record has the layout of "distroless" images, which have no package manager.
func (s System) Files(ctx context.Context, files ...string) (layer.Files, error) {
	out := layer.Files{}
	for _, file := range files {
		name, err := s.owner(ctx, file)
		if err != nil {
			return nil, err
		}
		plain, _, _ := strings.Cut(name, ":")
		copyright := path.Join("usr/share/doc", plain, "copyright")
		if _, ok := out[copyright]; ok {
			continue
		}
		terms, err := os.ReadFile(s.Path(copyright))
		if err != nil {
			return nil, fmt.Errorf("terms of package %s: %w", name, err)
		}
		status, err := s.query(ctx, "--status", name)
		if err != nil {
			return nil, fmt.Errorf("status of package %s: %w", name, err)
		}
		out[copyright] = layer.File{Mode: 0o644, Content: terms}
		out[path.Join("var/lib/dpkg/status.d", plain)] = layer.File{Mode: 0o644, Content: []byte(status)}
	}
	return out, nil
}

// Package returns the package that a file is from.
func (s System) Package(ctx context.Context, file string) (Package, error) {
	name, err := s.owner(ctx, file)
	if err != nil {
		return Package{}, err
	}
	return s.Named(ctx, name)
}

// Named returns the installed package with that name.
func (s System) Named(ctx context.Context, name string) (Package, error) {
	found, err := s.show(ctx, name)
	if err != nil {
		return Package{}, fmt.Errorf("package %s: %w", name, err)
	}
	if len(found) != 1 {
		return Package{}, fmt.Errorf("package %s: dpkg-query found %d", name, len(found))
	}
	return found[0], nil
}

// Installed returns all packages of the system.
func (s System) Installed(ctx context.Context) ([]Package, error) { return s.show(ctx) }

func (s System) show(ctx context.Context, names ...string) ([]Package, error) {
	out, err := s.query(ctx, append([]string{"--show", "--showformat", "${Package} ${Version} ${Architecture} ${source:Package}\n"}, names...)...)
	if err != nil {
		return nil, err
	}
	release, err := os.ReadFile(s.OSRelease())
	if err != nil {
		return nil, err
	}
	var found []Package
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return nil, fmt.Errorf("dpkg-query printed %q, want four words", line)
		}
		found = append(found, Package{Name: fields[0], Version: fields[1], Architecture: fields[2], Source: fields[3], Distribution: field(release, "ID"), Release: field(release, "VERSION_ID")})
	}
	return found, nil
}

// owner returns the package that a file is from, such as libc6:amd64.
func (s System) owner(ctx context.Context, file string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", err
	}
	if s.Root != "" {
		root, err := filepath.EvalSymlinks(s.Path("/"))
		if err != nil {
			return "", err
		}
		real = strings.TrimPrefix(real, root)
	}
	// Since /lib is a link to /usr/lib, a package may know a file by either.
	names := []string{real, strings.TrimPrefix(real, "/usr"), path.Join("/usr", real)}
	var errs []error
	for _, name := range names {
		out, err := s.query(ctx, "--search", name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		owner, _, _ := strings.Cut(strings.TrimSpace(out), ": ")
		return owner, nil
	}
	return "", fmt.Errorf("%s is of no Debian package, so its terms are unknown; build on Debian, or in a container of it: %w", file, errors.Join(errs...))
}

// field returns a field of os-release.
func field(release []byte, name string) string {
	for line := range strings.Lines(string(release)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

func (s System) query(ctx context.Context, args ...string) (string, error) {
	if s.Root != "" {
		args = append([]string{"--admindir", s.Path("var/lib/dpkg")}, args...)
	}
	cmd := exec.CommandContext(ctx, "dpkg-query", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("dpkg-query %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
