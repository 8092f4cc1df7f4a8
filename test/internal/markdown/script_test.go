// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// bash runs the only part of a document and returns its output.
func bash(t *testing.T, lines ...string) (string, error) {
	t.Helper()
	fences, err := Parse("docs/a.md", document(lines...))
	must(t, err)
	parts := Parts(fences)
	if len(parts) != 1 {
		t.Fatalf("%d parts, want 1", len(parts))
	}
	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Stdin = strings.NewReader(Script(parts[0]))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestScriptRunsAllCommandsInOneShellAndPrintsTheirLines(t *testing.T) {
	got, err := bash(t,
		"# Title",
		"'''sh",
		"NODE=worker    # or yours",
		"'''",
		"'''yaml",
		"exit 1",
		"'''",
		"  '''sh",
		"  cat <<EOF",
		"  on $NODE",
		"  EOF",
		"  '''",
	)
	want := `### docs/a.md:2
+ docs/a.md:3: NODE=worker
### docs/a.md:8
+ docs/a.md:9: cat
on worker
`
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, printed (-want +got):\n%s", err, diff)
	}
}

func TestScriptStopsAtTheFirstFailureAndPrintsItsLine(t *testing.T) {
	for _, c := range []struct {
		name    string
		command string
		want    string
	}{
		{"a command", "grep --quiet x /dev/null", "docs/a.md:4: exit status 1"},
		{"the first of a pipe", "grep x /dev/null | cat", "docs/a.md:4: exit status 1"},
		{"in a loop", "for i in 1 2; do test $i = 1; done", "docs/a.md:4: exit status 1"},
		{"a command that is not there", "no-such-command", "docs/a.md:4: exit status 127"},
		{"a variable that is not set", `echo "$NODE"`, "line 4: NODE: unbound variable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := bash(t, "# Title", "'''sh", "echo before", c.command, "echo after", "'''")
			if err == nil || !strings.Contains(out, c.want) || strings.Contains(out, "after\n") {
				t.Errorf("error %v, want %q in:\n%s", err, c.want, out)
			}
		})
	}
}

func TestARefusedFenceMustFail(t *testing.T) {
	out, err := bash(t, "# Title", "<!-- refused -->", "'''sh", "cat <<EOF | grep x", "y", "EOF", "'''", "'''sh", "echo after", "'''")
	if err != nil || !strings.HasSuffix(out, "\nafter\n") {
		t.Errorf("error %v, printed:\n%s", err, out)
	}
	out, err = bash(t, "# Title", "<!-- refused -->", "'''sh", "echo admitted", "'''", "'''sh", "echo after", "'''")
	if err == nil || !strings.Contains(out, "docs/a.md:3: it was to be refused") || strings.Contains(out, "after\n") {
		t.Errorf("error %v, printed:\n%s", err, out)
	}
}

func TestTheRecipeIsFollowedAfterCommandsOrWithOptions(t *testing.T) {
	t.Setenv("BASH_FUNC_recipe%%", `() { printf '<%s>' "$@"; }`)
	for _, c := range []struct{ name, language, line, want string }{
		{"commands", "sh", "echo before", "\nbefore\n<>"},
		{"options", "text", `--set 'a={"b": 1}' --set c=d`, `<--set><a={"b": 1}><--set><c=d>`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := bash(t, "# Title", "<!-- the recipe -->", "'''"+c.language, c.line, "'''")
			if err != nil || !strings.Contains(untraced.ReplaceAllString(out, ""), c.want) {
				t.Errorf("error %v, want %q in:\n%s", err, c.want, out)
			}
		})
	}
}

// untraced matches the lines in which bash prints a command.
var untraced = regexp.MustCompile(`(?m)^\++ .*\n`)

func TestPartsSeparatesAlternatives(t *testing.T) {
	fences, err := Parse("a.md", document("'''sh", "'''", "'''text", "'''", "'''sh", "'''", "<!-- begins anew -->", "'''sh", "'''",
		"<!-- not run by a test: no GPU -->", "'''sh", "'''", "'''sh", "'''"))
	must(t, err)
	var got [][]int
	for _, part := range Parts(fences) {
		var lines []int
		for _, f := range part {
			lines = append(lines, f.Line)
		}
		got = append(got, lines)
	}
	require.Same(t, "lines of the parts", [][]int{{1, 5}, {8, 13}}, got)
}
