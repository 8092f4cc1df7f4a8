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

const dockerfile = "deployments/container/Dockerfile"

// workflow has the parts of a workflow that decide the rights of a stranger's code. The rest
// is checked by actionlint.
type workflow struct {
	Permissions any
	Jobs        map[string]struct{ Permissions any }
}

// workflows calls check with each workflow.
func workflows(t *testing.T, check func(name, text string, w workflow)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.y*ml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("only the workflows %v found: %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		text, w := read(t, filepath.Join(".github/workflows", name)), workflow{}
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		check(name, text, w)
	}
}

// The owner of a tag can move it to other code, which would run with the rights of the workflow.
func TestActionsAndImagesArePinnedByDigest(t *testing.T) {
	action, image := regexp.MustCompile(`\buses["']?\s*:`), regexp.MustCompile(`\b(container|image)["']?\s*:|docker://`)
	commit := regexp.MustCompile(`^(- )?uses: (\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d\S*)$`)
	digest := regexp.MustCompile(`@sha256:[0-9a-f]{64}\b`)
	workflows(t, func(name, text string, _ workflow) {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "#"):
			case image.MatchString(line):
				if !digest.MatchString(line) {
					t.Errorf("%s: %s, want NAME:TAG@sha256: and 64 digits", name, line)
				}
			case action.MatchString(line) && !commit.MatchString(line):
				t.Errorf("%s: %s, want OWNER/NAME@, the 40 digits of a commit, and its version in a comment", name, line)
			}
		}
	})
	// The digests of these are not known; they have no tags of versions.
	named := []string{"gcr.io/distroless/cc-debian12", "gcr.io/distroless/static-debian12"}
	var stages []string
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--\S+ )*(\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(read(t, dockerfile), -1) {
		if !slices.Contains(stages, from[1]) && !slices.Contains(named, from[1]) && !digest.MatchString(from[1]) {
			t.Errorf("%s: %s, want NAME:TAG@sha256: and 64 digits", dockerfile, from[0])
		}
		stages = append(stages, from[2])
	}
	if len(stages) < 5 {
		t.Errorf("%s has only the stages %q", dockerfile, stages)
	}
}

// Without the key, a job has the rights that an owner has set for the repository.
func TestWorkflowsBeginWithFewRights(t *testing.T) {
	workflows(t, func(name, _ string, w workflow) {
		rights, ok := w.Permissions.(map[string]any)
		if !ok {
			t.Errorf("%s: permissions are %v, want a list at its top", name, w.Permissions)
		}
		for scope, right := range rights {
			if right != "read" {
				t.Errorf("%s: all jobs may %s %s; give the right to the job that needs it", name, right, scope)
			}
		}
	})
}

// A certificate for the identity of the project must be out of reach of tests.
func TestOnlyThePublishingJobGetsTheIdentity(t *testing.T) {
	var found []string
	workflows(t, func(name, _ string, w workflow) {
		for job, j := range w.Jobs {
			rights, _ := j.Permissions.(map[string]any)
			if rights["id-token"] == "write" || j.Permissions == "write-all" {
				found = append(found, name+" "+job)
			}
		}
	})
	// The scorecard signs its results with an identity, if there is one.
	found = slices.DeleteFunc(found, func(job string) bool { return strings.HasPrefix(job, "scorecard") })
	if want := []string{"release.yml publish"}; !slices.Equal(found, want) {
		t.Errorf("the jobs %q have id-token: write, want %q", found, want)
	}
}
