// SPDX-License-Identifier: Apache-2.0

// Package repository tests what does not belong to one program: licence headers,
// workflows, and the versions of a release.
package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// header is the licence line of a source file, after the comment marker.
const header = "SPDX-License-Identifier: Apache-2.0"

func TestEverySourceFileHasALicenceHeader(t *testing.T) {
	sources := 0
	for _, file := range sourceFiles(t) {
		sources++
		text := read(t, file)
		first, rest, _ := strings.Cut(text, "\n")
		if strings.HasPrefix(first, "#!") {
			first, _, _ = strings.Cut(rest, "\n")
		}
		if want := comment(file) + header; strings.TrimSuffix(first, " */") != want {
			t.Errorf("%s: the first line is %q, want %q", file, first, want)
		}
	}
	if sources < 300 {
		t.Errorf("only %d source files found", sources)
	}
}

// sourceFiles lists Go, C, protocol buffers, shell and Make. Manifests and
// documents are covered by LICENSE alone.
func sourceFiles(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("the list of files needs git and a checkout: %v", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(file string) bool {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return true // deleted and not committed
		}
		return comment(file) == ""
	})
}

// comment returns the start of a line comment in a source file, and "" for other
// files.
func comment(file string) string {
	switch filepath.Ext(file) {
	case ".go", ".proto":
		return "// "
	case ".c":
		return "/* "
	case ".sh":
		return "# "
	}
	if filepath.Base(file) == "Makefile" || strings.HasPrefix(file, "test/walkthrough/bin/") {
		return "# "
	}
	return ""
}

// A check that runs in a workflow can then be repeated on any machine.
func TestWorkflowsRunOnlyTargetsOfMake(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	makefile := read(t, "Makefile")
	command := regexp.MustCompile(`^(?:sudo --preserve-env=PATH,HOME )?make ([a-z0-9 -]+?)(?: [A-Z]+=.*)?$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Jobs map[string]struct {
				Steps []struct{ Run string }
			}
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if step.Run == "" {
					continue
				}
				found := command.FindStringSubmatch(step.Run)
				if found == nil {
					t.Errorf("%s: the job %s runs %q, want make and its targets", file, name, step.Run)
					continue
				}
				for _, target := range strings.Fields(found[1]) {
					if !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: the job %s runs the target %s, which the Makefile does not have", file, name, target)
					}
				}
			}
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

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
