// SPDX-License-Identifier: Apache-2.0

// Package debian finds the Debian package of a file on this machine. It also finds
// the terms of the package's distribution and the record that security scanners
// read.
//
// Out of scope: getting packages; other distributions.
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

// OSRelease names the distribution, which is how a scanner knows whose
// advisories apply.
const OSRelease = "/usr/lib/os-release"

// Files returns the copyright file and the scanner's record of each file's package.
// The result is by path in the image; files of the same package share its entries.
// The record has the layout of "distroless" images, which have no package manager.
func Files(ctx context.Context, files ...string) (layer.Files, error) {
	out := layer.Files{}
	for _, file := range files {
		name, err := owner(ctx, file)
		if err != nil {
			return nil, err
		}
		plain, _, _ := strings.Cut(name, ":")
		copyright := path.Join("usr/share/doc", plain, "copyright")
		if _, ok := out[copyright]; ok {
			continue
		}
		terms, err := os.ReadFile("/" + copyright)
		if err != nil {
			return nil, fmt.Errorf("terms of package %s: %w", name, err)
		}
		status, err := query(ctx, "--status", name)
		if err != nil {
			return nil, fmt.Errorf("status of package %s: %w", name, err)
		}
		out[copyright] = layer.File{Mode: 0o644, Content: terms}
		out[path.Join("var/lib/dpkg/status.d", plain)] = layer.File{Mode: 0o644, Content: []byte(status)}
	}
	return out, nil
}

// owner returns the package that a file is from, such as libc6:amd64.
func owner(ctx context.Context, file string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", err
	}
	// Since /lib is a link to /usr/lib, a package may know a file by either.
	names := []string{real, strings.TrimPrefix(real, "/usr"), path.Join("/usr", real)}
	var errs []error
	for _, name := range names {
		out, err := query(ctx, "--search", name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		owner, _, _ := strings.Cut(strings.TrimSpace(out), ": ")
		return owner, nil
	}
	return "", fmt.Errorf("%s is of no Debian package, so its terms are unknown; build on Debian, or in a container of it: %w", file, errors.Join(errs...))
}

func query(ctx context.Context, args ...string) (string, error) {
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
