// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// With a name in OWNERS that has no account, a change cannot be approved.
func TestOwnersResolveToTheMaintainers(t *testing.T) {
	var owners struct {
		Approvers, Reviewers []string
		Emeritus             []string `json:"emeritus_approvers"`
	}
	var file struct{ Aliases map[string][]string }
	for name, into := range map[string]any{"OWNERS": &owners, "OWNERS_ALIASES": &file} {
		if err := yaml.UnmarshalStrict([]byte(read(t, name)), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(owners.Approvers) == 0 || len(owners.Reviewers) == 0 {
		t.Error("OWNERS has no approver or no reviewer")
	}
	for _, name := range slices.Concat(owners.Approvers, owners.Reviewers) {
		if len(file.Aliases[name]) == 0 {
			t.Errorf("OWNERS names %s, which OWNERS_ALIASES does not have", name)
		}
	}
	maintainers := file.Aliases["maintainers"]
	if len(maintainers) == 0 {
		t.Fatal("OWNERS_ALIASES has no maintainers")
	}
	for _, member := range maintainers {
		if !strings.Contains(read(t, "MAINTAINERS.md"), "`"+member+"`") {
			t.Errorf("MAINTAINERS.md does not name %s", member)
		}
		if !strings.Contains(read(t, "SECURITY_CONTACTS"), "\n"+member+"\n") {
			t.Errorf("SECURITY_CONTACTS does not name %s", member)
		}
		if !strings.Contains(read(t, ".github/CODEOWNERS"), "\n* @"+member+"\n") {
			t.Errorf(".github/CODEOWNERS does not name %s", member)
		}
	}
}

func TestDependabotUpdatesEveryModuleAndTheWorkflows(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem string `json:"package-ecosystem"`
			Directory string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	var modules []string
	workflows := false
	for _, update := range config.Updates {
		switch update.Ecosystem {
		case "gomod":
			modules = append(modules, strings.TrimPrefix(update.Directory, "/"))
		case "github-actions":
			workflows = update.Directory == "/"
		}
	}
	if !workflows {
		t.Error("the actions of the workflows are not updated")
	}
	want := append(nestedModules(t), "")
	slices.Sort(want)
	slices.Sort(modules)
	if !slices.Equal(want, modules) {
		t.Errorf("updated modules are %q, want %q", modules, want)
	}
}

// A badge of a workflow that was renamed is a broken picture on the front page.
func TestBadgesAreOfWorkflowsThatExist(t *testing.T) {
	text := read(t, "README.md")
	badge := regexp.MustCompile(`\[!\[[^\]]+\]\(([^)]+)\)\]\(([^)]+)\)`)
	workflow := regexp.MustCompile(`^https://github\.com/gpu-dra/gpu-dra-driver/actions/workflows/([a-z]+\.yml)/badge\.svg`)
	found := 0
	for _, m := range badge.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "/actions/workflows/") {
			continue
		}
		found++
		file := workflow.FindStringSubmatch(m[1])
		if file == nil {
			t.Errorf("the badge %s is not of a workflow of this repository", m[1])
			continue
		}
		read(t, filepath.Join(".github/workflows", file[1]))
	}
	if found == 0 {
		t.Error("README.md has no badge of a workflow")
	}
}

// Documents name the Go version of go.mod.
func TestTheReadmeNamesTheGoVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, file := range []string{"README.md", ".devcontainer/Dockerfile"} {
		if !strings.Contains(strings.ToLower(read(t, file)), "go "+version) && !strings.Contains(read(t, file), "golang:"+version) {
			t.Errorf("%s does not name Go %s, which go.mod needs", file, version)
		}
	}
}
