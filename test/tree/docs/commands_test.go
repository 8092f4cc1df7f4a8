// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

var placeholder = regexp.MustCompile(`<[a-z][a-z -]*>|…|\.\.\.$|^\$ `)

func TestCommandsCanBePasted(t *testing.T) {
	for _, f := range fences(t) {
		if f.Language != markdown.Commands {
			continue
		}
		if len(f.Lines) == 0 {
			t.Errorf("%s: no commands", f.Where())
		}
		for _, line := range f.Lines {
			if found := placeholder.FindString(line); found != "" {
				t.Errorf("%s: %q is for a reader to fill in: let a variable stand for it, which is set in a line of its own: %s", f.Where(), found, line)
			}
		}
		bash := exec.CommandContext(t.Context(), "bash", "-n")
		bash.Stdin = strings.NewReader(markdown.Script([]markdown.Fence{f}))
		if out, err := bash.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", f.Where(), err, out)
		}
	}
}

// fences of all documents.
func fences(t *testing.T) []markdown.Fence {
	t.Helper()
	var all []markdown.Fence
	for _, doc := range documents(t) {
		found, err := markdown.Read(root, doc)
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	if len(all) < 50 {
		t.Errorf("%d fences in all documents", len(all))
	}
	return all
}
