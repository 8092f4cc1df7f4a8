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

func TestWorkflowsRunTargetsThatExist(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	makefile, found := read(t, "Makefile"), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range regexp.MustCompile(`(?m)run: .*\bmake ([a-z0-9 -]+?)(?: [A-Z]+=.*)?$`).FindAllStringSubmatch(string(text), -1) {
			for _, target := range strings.Fields(command[1]) {
				found++
				pattern, _, _ := strings.Cut(target, "-")
				if !strings.Contains(makefile, "\n"+target+":") && !strings.Contains(makefile, "\n"+pattern+"-%:") {
					t.Errorf("%s runs the target %s, which the Makefile does not have", file, target)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d targets", found)
	}
}

// Go's cache of test results does not track files outside a test's module. The
// tests of nested modules read the chart, the commands and the golden files. So a
// cached result could hide a failure that a fresh machine shows.
func TestNestedModulesAreTestedWithoutCachedResults(t *testing.T) {
	command := regexp.MustCompile(`\bgo -C (\S+) test\b(.*)`)
	tested := map[string]bool{}
	makefile := read(t, "Makefile")
	for _, found := range regexp.MustCompile(`[ :]module-([a-z]+)\b`).FindAllStringSubmatch(makefile, -1) {
		tested["test/"+found[1]], tested["test/judges/"+found[1]] = true, true
	}
	for line := range strings.Lines(makefile) {
		for _, found := range command.FindAllStringSubmatch(line, -1) {
			tested[found[1]] = true
			if !slices.Contains(strings.Fields(found[2]), "-count=1") {
				t.Errorf("the Makefile tests %s with cached results: add -count=1 to %q", found[1], strings.TrimSpace(line))
			}
		}
	}
	modules := nestedModules(t)
	if len(modules) < 5 {
		t.Fatalf("only the nested modules %v found", modules)
	}
	for _, module := range modules {
		if hasTests(t, module, modules) && !tested[module] {
			t.Errorf("no step of the Makefile tests the module %s", module)
		}
	}
}

// A test on a cluster has a step of its own. As a unit test too, it would bring up a second
// cluster at the same time.
func TestTestsOnAClusterAreOutsideTheUnitTests(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^OTHER_TESTS := (.*)$`).FindStringSubmatch(read(t, "Makefile"))
	if listed == nil {
		t.Fatal("the Makefile has no OTHER_TESTS")
	}
	found := 0
	walkFiles(t, "test", nil, func(path string) {
		if strings.HasSuffix(path, "_test.go") && strings.Contains(read(t, path), "\nfunc TestMain(m *testing.M) { harness.Main(") {
			found++
			if name := filepath.Base(filepath.Dir(path)); !strings.Contains(listed[1], name) {
				t.Errorf("OTHER_TESTS in the Makefile lacks %s", name)
			}
		}
	})
	if found < 5 {
		t.Errorf("found %d packages of tests on a cluster", found)
	}
}

func TestCIDiscardsCachedResultsFirst(t *testing.T) {
	var commands []string
	for line := range strings.Lines(read(t, ".ci/run")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	last := commands[max(len(commands)-2, 0):]
	if want := []string{"go clean -testcache", "exec make test"}; !slices.Equal(last, want) {
		t.Errorf(".ci/run ends with %q, want %q", last, want)
	}
}

// nestedModules lists the folders of the modules below the root.
func nestedModules(t *testing.T) []string {
	t.Helper()
	var modules []string
	walkFiles(t, ".", nil, func(path string) {
		if filepath.Base(path) == "go.mod" && path != "go.mod" {
			modules = append(modules, filepath.Dir(path))
		}
	})
	return modules
}

// hasTests reports whether the module has a test, apart from the modules below it.
func hasTests(t *testing.T, module string, modules []string) bool {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return m == module })
	found := false
	walkFiles(t, module, others, func(path string) {
		found = found || strings.HasSuffix(path, "_test.go")
	})
	return found
}

// walkFiles calls visit with each file below a folder of the repository. It skips
// hidden folders and the folders in without. All paths are relative to the root.
func walkFiles(t *testing.T, folder string, without []string, visit func(path string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains(without, path)) {
			return fs.SkipDir
		}
		if !entry.IsDir() {
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
