// SPDX-License-Identifier: Apache-2.0

// Package repository tests what does not belong to one program: workflows, nested
// modules, and the versions of a release.
package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

// Go's cache of test results does not track files outside a test's module. The
// tests of nested modules read the chart, the commands and the golden files. So a
// cached result could hide a failure that a fresh machine shows.
func TestNestedModulesAreTestedWithoutCachedResults(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, command := range regexp.MustCompile(`\bgo -C \S+ test\b.*`).FindAllString(makefile, -1) {
		if !strings.Contains(command, " -count=1 ") {
			t.Errorf("the Makefile tests a module with cached results: add -count=1 to %q", command)
		}
	}
	modules := modules(t)
	for _, file := range files(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		module := filepath.Dir(file)
		for !slices.Contains(modules, module) {
			module = filepath.Dir(module)
		}
		step := regexp.MustCompile(`go -C ` + regexp.QuoteMeta(module) + ` test\b|\bmodule-` + filepath.Base(module) + `\b`)
		if module != "." && !step.MatchString(makefile) {
			t.Errorf("no step of the Makefile tests the module %s", module)
			modules = slices.DeleteFunc(modules, func(m string) bool { return m == module })
		}
	}
}

// A module without an entry gets no security updates.
func TestDependabotUpdatesEveryModule(t *testing.T) {
	config := read(t, ".github/dependabot.yml")
	for _, module := range modules(t) {
		if entry := "- package-ecosystem: gomod\n  directory: /" + strings.TrimPrefix(module, ".") + "\n"; !strings.Contains(config, entry) {
			t.Errorf(".github/dependabot.yml lacks the module %s", module)
		}
	}
}

// Where mounts are shared, as with systemd, an unmount of a copy in a test reaches the machine's original.
func TestTestsMountInANamespaceOfTheirOwn(t *testing.T) {
	exceptions := []string{
		"foreign", // the node of the cluster must see the mounts, which are in a group of their own
		"gpu",     // only its clients mount, which it starts in a namespace of their own
	}
	mount := regexp.MustCompile(`\b(unix|syscall)\.(Mount|Unmount)\(`)
	mounts, enters := map[string]bool{}, map[string]bool{}
	for _, file := range files(t) {
		if strings.HasSuffix(file, "_test.go") {
			folder, text := filepath.Dir(file), read(t, file)
			mounts[folder] = mounts[folder] || mount.MatchString(text)
			enters[folder] = enters[folder] || strings.Contains(text, "\tmountns.Enter()\n")
		}
	}
	for folder := range mounts {
		if mounts[folder] && !enters[folder] && !slices.Contains(exceptions, filepath.Base(folder)) {
			t.Errorf("the tests of %s mount on the machine: call mountns.Enter in TestMain", folder)
		}
	}
}

func TestTheVersionIsTheSameEverywhere(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(read(t, "deployments/helm/gpu-dra-driver/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
