package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// contextDir is the folder that the Dockerfile is built from.
const contextDir = "../.."

// stages parses the Dockerfile as a container engine does.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range tree.Warnings {
		t.Errorf("warning: %s", warning.Short)
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// ignored tells what .dockerignore keeps out of the context.
func ignored(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(contextDir, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return matcher
}

// described is what a target of the Dockerfile adds up to.
type described struct {
	User, WorkingDir string
	Entrypoint       []string
	Env              []string
	Labels           map[string]string
}

func describe(t *testing.T, stages []instructions.Stage, target string) described {
	t.Helper()
	at := -1
	for n, stage := range stages {
		if stage.Name == target {
			at = n
		}
	}
	if at < 0 {
		if target != "scratch" {
			t.Errorf("no stage %s", target)
		}
		return described{Labels: map[string]string{}}
	}
	d := describe(t, stages, stages[at].BaseName)
	for _, command := range stages[at].Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			d.User = c.User
		case *instructions.WorkdirCommand:
			d.WorkingDir = c.Path
		case *instructions.EntrypointCommand:
			d.Entrypoint = c.CmdLine
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				d.Env = append(d.Env, e.String())
			}
		case *instructions.LabelCommand:
			for _, l := range c.Labels {
				d.Labels[l.Key] = strings.Trim(l.Value, `"`)
			}
		}
	}
	return d
}

func TestTheDockerfileMakesTheSameImages(t *testing.T) {
	b := builder{version: "${VERSION}", revision: "${REVISION}"}
	stages := stages(t)
	for _, i := range images() {
		c := b.config(i)
		// An engine says by itself when.
		delete(c.Labels, "org.opencontainers.image.created")
		want := described{User: c.User, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Env: c.Env, Labels: c.Labels}
		if diff := cmp.Diff(want, describe(t, stages, i.name)); diff != "" {
			t.Errorf("target %s (-images.go +Dockerfile):\n%s", i.name, diff)
		}
	}
}

func TestWhatTheDockerfileCopiesIsThere(t *testing.T) {
	stages, ignored := stages(t), ignored(t)
	before := map[string]bool{}
	for _, stage := range stages {
		for _, command := range stage.Commands {
			copy, ok := command.(*instructions.CopyCommand)
			if !ok {
				continue
			}
			for _, source := range copy.SourcePaths {
				if copy.From != "" {
					root := strings.TrimSuffix(strings.TrimPrefix(source, "/roots/"), "/")
					if !before[copy.From] || root != stage.Name {
						t.Errorf("stage %s copies %s from %s", stage.Name, source, copy.From)
					}
					continue
				}
				if _, err := os.Stat(filepath.Join(contextDir, source)); err != nil {
					t.Error(err)
				}
				if out, err := ignored.MatchesOrParentMatches(source); out || err != nil {
					t.Errorf("%s is kept out of the context by .dockerignore: %v, error %v", source, out, err)
				}
			}
		}
		before[stage.Name] = true
	}
}

func TestTheContextHasAllSourcesAndNothingBuilt(t *testing.T) {
	ignored := ignored(t)
	for _, dir := range []string{"api", "cmd", "pkg", "test/cluster", "deployments/container"} {
		err := filepath.WalkDir(filepath.Join(contextDir, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(contextDir, file)
			if err != nil {
				return err
			}
			if out, err := ignored.MatchesOrParentMatches(name); out || err != nil {
				t.Errorf("%s is kept out: %v, error %v", name, out, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{".build/bin/gpu-kubelet-plugin", ".git/config", "test/e2e/main_test.go"} {
		if out, err := ignored.MatchesOrParentMatches(name); !out || err != nil {
			t.Errorf("%s is in the context", name)
		}
	}
}
