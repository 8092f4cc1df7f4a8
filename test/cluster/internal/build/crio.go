// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// crioModule is built in its own directory, with its own pins: the checksum database lacks
// some of them, so that no module of ours can require it.
const crioModule = "github.com/cri-o/cri-o@v1.36.1"

// CRI-O's module requires a candidate of Kubernetes' libraries that cannot be had everywhere. It is
// built with the release, which has the same interfaces.
const crioCandidate, crioRelease = " v0.36.0-rc.0", " v0.36.0"

// crioTags leave out what needs cgo and the libraries of a distribution.
const crioTags = "-tags=containers_image_openpgp,exclude_graphdriver_btrfs"

// crioTargets returns the binaries of a node with CRI-O. pinns is a program in C that pins
// the namespaces of pods.
func crioTargets() []Target {
	return []Target{
		{Name: "crio", Module: crioModule, Package: "./cmd/crio", ldflags: plainFlags},
		{Name: pinns, Module: crioModule, Package: "./pinns"},
		{Name: "oci-runtime", Module: ".", Package: "./oci-runtime", ldflags: plainFlags},
	}
}

const pinns = "pinns"

// isForeign reports whether a target is built in the directory of another module.
func (t Target) isForeign() bool { return strings.Contains(t.Module, "@") }

// foreignCommand returns the command that builds a target of another module, and the
// directory to run it in. It downloads the module.
func foreignCommand(ctx context.Context, goTool, target string, t Target) (args []string, dir string, err error) {
	download := exec.CommandContext(ctx, goTool, "mod", "download", "-json", t.Module)
	download.Dir = os.TempDir() // in no module
	download.Env = append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	var module struct{ Dir, Error string }
	if err = errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		return nil, "", fmt.Errorf("download %s: %w: %s", t.Module, err, module.Error)
	}
	if t.Name != pinns {
		pins, err := crioPins(module.Dir, target)
		if err != nil {
			return nil, "", err
		}
		return []string{goTool, "build", "-trimpath", "-mod=mod", "-modfile=" + pins, crioTags, "-ldflags", t.ldflags, "-o", target, t.Package}, module.Dir, nil
	}
	sources, err := filepath.Glob(filepath.Join(module.Dir, "pinns", "src", "*.c"))
	if err != nil || len(sources) == 0 {
		return nil, "", fmt.Errorf("the sources of %s are missing: %w", t.Name, err)
	}
	return append([]string{"cc", "-std=c99", "-Os", "-static", "-o", target}, sources...), module.Dir, nil
}

// crioPins writes the pins of CRI-O next to the target and returns their path. The directory of the
// module is read-only.
func crioPins(module, target string) (string, error) {
	for _, extension := range []string{".mod", ".sum"} {
		pins, err := os.ReadFile(filepath.Join(module, "go"+extension))
		if err != nil {
			return "", fmt.Errorf("read the pins of CRI-O: %w", err)
		}
		if extension == ".mod" {
			pins = bytes.ReplaceAll(pins, []byte(crioCandidate), []byte(crioRelease))
		}
		if err := os.WriteFile(target+extension, pins, 0o644); err != nil {
			return "", fmt.Errorf("write the pins of CRI-O: %w", err)
		}
	}
	return target + ".mod", nil
}
