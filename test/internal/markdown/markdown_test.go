// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// document joins lines, in which three single quotes stand for a fence.
func document(lines ...string) string {
	text := strings.Join(lines, "\n") + "\n"
	return strings.ReplaceAll(text, "'''", "```")
}

func TestParseReturnsFencesWithTheirComments(t *testing.T) {
	got, err := Parse("docs/a.md", document(
		"# Title",
		"",
		"'''sh",
		"kubectl get pods",
		"'''",
		"1. In a list:",
		"   <!-- not run by a test: it needs a GPU -->",
		"   '''sh",
		"   cat <<EOF",
		"     indented",
		"   EOF",
		"   '''",
		"'''",
		"figure",
		"'''",
		"<!-- refused -->",
		"'''sh",
		"'''",
		"<!-- begins anew -->",
		"'''sh",
		"'''",
	))
	must(t, err)
	want := []Fence{
		{File: "docs/a.md", Line: 3, Language: "sh", Lines: []string{"kubectl get pods"}},
		{File: "docs/a.md", Line: 8, Language: "sh", Lines: []string{"cat <<EOF", "  indented", "EOF"}, NotRun: "it needs a GPU"},
		{File: "docs/a.md", Line: 13, Lines: []string{"figure"}},
		{File: "docs/a.md", Line: 17, Language: "sh", Refused: true},
		{File: "docs/a.md", Line: 20, Language: "sh", Anew: true},
	}
	require.Same(t, "fences", want, got)
}

func TestParseReportsTheLineOfAMistake(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		want string
	}{
		{"a fence without an end", document("", "'''sh", "ls"), "a.md:2: the fence never ends"},
		{"a reason is missing", document("<!-- not run by a test: -->", "'''sh", "'''"), "a.md:2: the comment before it"},
		{"a misspelt comment", document("<!-- not run -->", "'''sh", "'''"), `a.md:2: the comment before it is "not run"`},
		{"a comment before a manifest", document("<!-- refused -->", "'''yaml", "'''"), `a.md:2: a comment before a fence is for commands (sh), not for "yaml"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("a.md", c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestFilesSkipsHiddenFolders(t *testing.T) {
	top := t.TempDir()
	for _, file := range []string{"b.md", "docs/a.md", "docs/a.txt", ".build/c.md", "test/x/README.md"} {
		path := filepath.Join(top, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	got, err := Files(top)
	must(t, err)
	require.Same(t, "files", []string{"b.md", "docs/a.md", "test/x/README.md"}, got)
}

var must = require.NoError
