// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow has the parts of a workflow that decide what a stranger's code may do.
type workflow struct {
	Permissions any
	Jobs        map[string]struct {
		Permissions any
		Uses        string
		Steps       []struct{ Uses, Run string }
	}
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	out := map[string]workflow{}
	for _, pattern := range []string{"*.yml", "*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, ".github/workflows", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var w workflow
			if err := yaml.Unmarshal(text, &w); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out[filepath.Base(file)] = w
		}
	}
	if len(out) < 2 {
		t.Fatalf("only the workflows %v found", out)
	}
	return out
}

// The owner of a tag can move it to other code, which would run with the rights of the workflow.
func TestActionsArePinnedByCommit(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	for name, w := range workflows(t) {
		for job, j := range w.Jobs {
			uses := []string{j.Uses}
			for _, step := range j.Steps {
				uses = append(uses, step.Uses)
			}
			for _, action := range uses {
				if action != "" && !strings.HasPrefix(action, "./") && !pinned.MatchString(action) {
					t.Errorf("%s: the job %s uses %s, want OWNER/NAME@ and the 40 digits of a commit", name, job, action)
				}
			}
		}
	}
}

func TestImagesOfWorkflowsArePinnedByDigest(t *testing.T) {
	image := regexp.MustCompile(`^\s*(?:- )?(?:container|image): *(\S+)|docker://(\S+)`)
	for name := range workflows(t) {
		for line := range strings.Lines(read(t, filepath.Join(".github/workflows", name))) {
			if image.MatchString(line) && !regexp.MustCompile(`@sha256:[0-9a-f]{64}\b`).MatchString(line) {
				t.Errorf("%s: %s, want NAME:TAG@sha256: and 64 digits", name, strings.TrimSpace(line))
			}
		}
	}
}

// A hash says nothing to a reader, and tools that update it look for the version behind it.
func TestPinnedActionsNameTheirVersion(t *testing.T) {
	for name := range workflows(t) {
		for line := range strings.Lines(read(t, filepath.Join(".github/workflows", name))) {
			if strings.Contains(line, "uses: ") && !regexp.MustCompile(`uses: (\./|\S+@[0-9a-f]{40} # v\d)`).MatchString(line) {
				t.Errorf("%s: no version in a comment: %s", name, strings.TrimSpace(line))
			}
		}
	}
}

// Without the key, a job has the rights that an owner has set for the repository.
func TestWorkflowsBeginWithFewRights(t *testing.T) {
	for name, w := range workflows(t) {
		rights, ok := w.Permissions.(map[string]any)
		if !ok {
			t.Errorf("%s: permissions are %v, want a list at its top", name, w.Permissions)
		}
		for scope, right := range rights {
			if right != "read" {
				t.Errorf("%s: all jobs may %s %s; give the right to the job that needs it", name, right, scope)
			}
		}
	}
}

// A certificate for the identity of the project must be out of reach of tests.
func TestOnlyThePublishingJobGetsTheIdentity(t *testing.T) {
	var found []string
	for name, w := range workflows(t) {
		for job, j := range w.Jobs {
			if rights, ok := j.Permissions.(map[string]any); ok && rights["id-token"] == "write" {
				found = append(found, name+" "+job)
			}
		}
	}
	slices.Sort(found)
	// The scorecard signs its results with an identity, if there is one.
	found = slices.DeleteFunc(found, func(job string) bool { return strings.HasPrefix(job, "scorecard") })
	if want := []string{"release.yml publish"}; !slices.Equal(found, want) {
		t.Errorf("the jobs %q have id-token: write, want %q", found, want)
	}
}
