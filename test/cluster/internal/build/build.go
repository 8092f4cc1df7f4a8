// SPDX-License-Identifier: Apache-2.0

// Package build makes the binaries of a test cluster from the Go modules that pin
// them. It skips the build if the binaries are current.
//
// Out of scope: the driver's own binaries.
package build

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/travel"
)

// Target is one binary.
type Target struct {
	// Name of the binary.
	Name string
	// Module is the directory of its Go module, relative to test/cluster, or another module
	// as PATH@VERSION.
	Module string
	// Pins is the file of the module that pins the versions, in place of go.mod.
	Pins string
	// Package to build, as go build takes it: a package or a file.
	Package string
	ldflags string
	// links are further names of the binary.
	links []string
}

const plainFlags = "-s -w"

// pins is the module with the versions of other projects' programs, relative to test/cluster.
const pins = "pins"

// The container runtimes that a cluster can have.
const (
	Containerd = "containerd"
	CRIO       = "cri-o"
)

// ContainerRuntimes are all container runtimes that a cluster can have.
func ContainerRuntimes() []string { return []string{Containerd, CRIO} }

// Targets returns all binaries of a cluster of the release with the container runtime. The
// flags are part of the Go build cache's key: changing one costs every machine a full build.
func Targets(release Release, containerRuntime string) []Target {
	targets := []Target{release.target()}
	if containerRuntime == CRIO {
		targets = append(targets, crioTargets()...)
	} else {
		for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			targets = append(targets, Target{Name: name, Module: pins, Pins: "runtime.mod", Package: "github.com/containerd/containerd/v2/cmd/" + name, ldflags: plainFlags})
		}
	}
	for _, name := range []string{"ipam/host-local", "main/ptp"} {
		targets = append(targets, Target{Name: path.Base(name), Module: pins, Pins: "runtime.mod", Package: "github.com/containernetworking/plugins/plugins/" + name, ldflags: plainFlags})
	}
	return append(targets,
		Target{Name: "etcd", Module: pins, Pins: "runtime.mod", Package: "go.etcd.io/etcd/server/v3", ldflags: plainFlags},
		Target{Name: "pause", Module: ".", Package: "./pause", ldflags: plainFlags},
		Target{Name: "probe", Module: "../../simulator", Package: "./cmd/probe", ldflags: plainFlags},
	)
}

// FindSource returns the path of test/cluster in the source tree that contains dir. It
// returns "" if dir is not in such a tree.
func FindSource(dir string) string {
	for {
		source := filepath.Join(dir, "test", "cluster")
		if _, err := os.Stat(filepath.Join(source, pins, "go.mod")); err == nil {
			return source
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// Stale returns the targets that must be built: targets that are missing from bin, and if
// there is a source tree, targets built from other sources.
func Stale(source, bin string, targets []Target) ([]Target, error) {
	built := readBuilt(bin)
	var stale []Target
	for _, t := range targets {
		if slices.ContainsFunc(append(slices.Clone(t.links), t.Name), func(name string) bool {
			_, err := os.Stat(filepath.Join(bin, name))
			return err != nil
		}) {
			stale = append(stale, t)
			continue
		}
		if source == "" {
			continue
		}
		want, err := fingerprint(source, t)
		if err != nil {
			return nil, err
		}
		if built[t.Name] != want {
			stale = append(stale, t)
		}
	}
	return stale, nil
}

// Run builds the targets into bin, one after the other, and says so on say.
func Run(ctx context.Context, source, bin string, targets []Target, say func(format string, args ...any)) error {
	if len(targets) == 0 {
		return nil
	}
	if source == "" {
		return fmt.Errorf("%s lacks %s, and they cannot be built: run this inside a clone of the repository, or name a directory that has them with --bin", bin, names(targets))
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("build the cluster's binaries: %w: Go 1.26 is needed", err)
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("build the cluster's binaries: %w", err)
	}
	say("building %d binaries into %s (about 15 minutes on 2 cores the first time, seconds with a warm Go build cache)", len(targets), bin)
	for i, t := range targets {
		start := time.Now()
		if err := compile(ctx, goTool, source, bin, t, say); err != nil {
			return err
		}
		say("built %d/%d %s in %s", i+1, len(targets), t.Name, time.Since(start).Round(100*time.Millisecond))
	}
	return nil
}

func compile(ctx context.Context, goTool, source, bin string, t Target, say func(format string, args ...any)) error {
	want, err := fingerprint(source, t)
	if err != nil {
		return err
	}
	target := filepath.Join(bin, t.Name)
	args, dir := []string{goTool, "build", "-trimpath", "-modfile", t.pins(), "-ldflags", t.ldflags, "-o", target, t.Package}, filepath.Join(source, t.Module)
	if t.isForeign() {
		if args, dir, err = foreignCommand(ctx, goTool, target, t); err != nil {
			return fmt.Errorf("build %s: %w", t.Name, err)
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w", t.Name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", t.Name, err, lastLines(output.String(), 30))
			}
			if err := link(bin, t); err != nil {
				return fmt.Errorf("build %s: %w", t.Name, err)
			}
			return recordBuilt(bin, t.Name, want)
		case <-tick.C:
			say("still building %s (%s)", t.Name, time.Since(start).Round(time.Second))
		}
	}
}

// link creates the further names of a built binary.
func link(bin string, t Target) error {
	for _, name := range t.links {
		path := filepath.Join(bin, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(t.Name, path); err != nil {
			return err
		}
	}
	return nil
}

// CopyTo copies a built binary and its further names to another folder.
func (t Target) CopyTo(to, from string) error {
	if err := travel.Copy(filepath.Join(from, t.Name), filepath.Join(to, t.Name)); err != nil {
		return err
	}
	return link(to, t)
}

// pins returns the file of the target's module that pins the versions.
func (t Target) pins() string { return cmp.Or(t.Pins, "go.mod") }

// fingerprint is a digest of what decides a binary's content: its module's
// pins and the flags, and for a program of ours the source.
func fingerprint(source string, t Target) (string, error) {
	digest := sha256.New()
	fmt.Fprintln(digest, t.Package, t.ldflags) //nolint:errcheck // a hash never fails
	if t.isForeign() {
		fmt.Fprintln(digest, t.Module, crioTags, crioRelease) //nolint:errcheck // a hash never fails
		return fmt.Sprintf("%x", digest.Sum(nil)), nil
	}
	dir := filepath.Join(source, t.Module)
	modfile := filepath.Join(dir, t.pins())
	files := []string{modfile, strings.TrimSuffix(modfile, "mod") + "sum"}
	if strings.HasSuffix(t.Package, ".go") {
		files = append(files, filepath.Join(dir, t.Package))
	}
	if strings.HasPrefix(t.Package, "./") {
		// The programs of ours use the standard library only.
		own, err := filepath.Glob(filepath.Join(dir, t.Package, "*.go"))
		if err != nil {
			return "", err
		}
		files = own
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("source of %s: %w", t.Name, err)
		}
		digest.Write(data)
	}
	return fmt.Sprintf("%x", digest.Sum(nil)), nil
}

func builtFile(bin string) string { return filepath.Join(bin, "built.json") }

// readBuilt returns the fingerprint of each binary that was built here. If the file
// cannot be read it returns none.
func readBuilt(bin string) map[string]string {
	built := map[string]string{}
	data, err := os.ReadFile(builtFile(bin))
	if err != nil || json.Unmarshal(data, &built) != nil {
		return map[string]string{}
	}
	return built
}

func recordBuilt(bin, name, fingerprint string) error {
	built := readBuilt(bin)
	built[name] = fingerprint
	data, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(builtFile(bin), append(data, '\n'), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record the build of %s: %w", name, err)
	}
	return nil
}

func names(targets []Target) string {
	var all []string
	for _, t := range targets {
		all = append(all, t.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
