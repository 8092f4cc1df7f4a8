// SPDX-License-Identifier: Apache-2.0

// Package repository tests what does not belong to one program: workflows, nested
// modules, and the versions of a release.
package repository

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const root = "../../.."

// A module without an entry gets no security updates.
func TestDependabotUpdatesEveryModule(t *testing.T) {
	config := read(t, ".github/dependabot.yml")
	for _, module := range modules(t) {
		if entry := "- package-ecosystem: gomod\n  directory: /" + strings.TrimPrefix(module, ".") + "\n"; !strings.Contains(config, entry) {
			t.Errorf(".github/dependabot.yml lacks the module %s", module)
		}
	}
}

func TestTheVersionIsTheSameEverywhere(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	must(t, yaml.Unmarshal([]byte(read(t, "deployments/helm/gpu-dra-driver/Chart.yaml")), &chart))
	version := chart.AppVersion
	if version != "v"+chart.Version {
		t.Errorf("the chart has version %s and appVersion %s", chart.Version, version)
	}
	for file, want := range map[string]string{
		"CHANGELOG.md": "\n## " + version + "\n",
		"Makefile":     "\nVERSION    ?= " + version + "+",
	} {
		if !strings.Contains(read(t, file), want) {
			t.Errorf("%s has no %q", file, strings.TrimSpace(want))
		}
	}
}

// A run that has fuzzed nothing must fail.
func TestFuzzFailsIfGoCannotListTheTargets(t *testing.T) {
	for name, tc := range map[string]struct {
		program string
		fails   bool
	}{
		"every command runs":        {`case "$*" in "list ./...") echo example.com/p ;; "test -list"*) printf 'FuzzIt\nok\n' ;; esac`, false},
		"a package without targets": {`case "$*" in "list ./...") echo example.com/p ;; "test -list"*) echo ok ;; esac`, false},
		"no list of packages":       {`case "$*" in "list ./...") exit 1 ;; esac`, true},
		"a package does not build":  {`case "$*" in "list ./...") echo example.com/p ;; "test -list"*) exit 1 ;; esac`, true},
		"a target finds a bug":      {`case "$*" in "list ./...") echo example.com/p ;; "test -list"*) echo FuzzIt ;; "test -run"*) exit 1 ;; esac`, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+tc.program+"\n"), 0o700))
			cmd := exec.CommandContext(t.Context(), "make", "--directory", root, "fuzz")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "MAKEFLAGS=")
			if out, err := cmd.CombinedOutput(); (err != nil) != tc.fails {
				t.Errorf("make fuzz: %v\n%s", err, out)
			}
		})
	}
}

// Go finds a version of a nested module by a tag with its folder.
func TestAReleaseTagsEveryModuleThatGoInstalls(t *testing.T) {
	installed := regexp.MustCompile(`go install github\.com/gpu-dra/gpu-dra-driver/(\S+)@`)
	release, found := read(t, "RELEASE.md"), 0
	for _, file := range files(t) {
		if filepath.Base(file) != "README.md" {
			continue
		}
		for _, match := range installed.FindAllStringSubmatch(read(t, file), -1) {
			found++
			folder := match[1]
			for folder != "." && !slices.Contains(modules(t), folder) {
				folder = filepath.Dir(folder)
			}
			if tag := "`" + filepath.Join(folder, "vX.Y.Z") + "`"; !strings.Contains(release, tag) {
				t.Errorf("RELEASE.md does not tag %s, which %s installs", tag, file)
			}
		}
	}
	if found == 0 {
		t.Error("no README has a go install line")
	}
}

// modules lists the folders of all modules.
func modules(t *testing.T) []string {
	t.Helper()
	var folders []string
	for _, file := range files(t) {
		if filepath.Base(file) == "go.mod" {
			folders = append(folders, filepath.Dir(file))
		}
	}
	if len(folders) < 5 {
		t.Fatalf("only the modules %v found", folders)
	}
	return folders
}

// files lists the files of the repository outside hidden folders, relative to the root.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	must(t, err)
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	return string(text)
}

var must = require.NoError
