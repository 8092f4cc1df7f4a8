// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"fmt"
	"strings"
)

// Parts returns the fences of a document that tests run, grouped by shell. A fence that
// has the mark "begins anew" starts the next group.
func Parts(fences []Fence) [][]Fence {
	var parts [][]Fence
	for _, f := range fences {
		if f.Language != Commands && !f.Recipe || f.NotRun != "" {
			continue
		}
		if len(parts) == 0 || f.Anew {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], f)
	}
	return parts
}

// Script returns the bash script for fences of one document. It ends with the first
// command that fails. Every command has the same line number as in the document, so that
// bash's own messages name that line, and is printed before it runs. A mark precedes the
// output of each fence. The program recipe installs the driver, with the options in its
// arguments.
func Script(fences []Fence) string {
	var lines []string
	set := func(line int, text string) {
		lines = append(lines, make([]string, max(0, line-len(lines)))...)
		lines[line-1] += text
	}
	for _, f := range fences {
		// The first line of a document is its title, and never in a fence.
		set(1, "")
		if lines[0] == "" {
			lines[0] = fmt.Sprintf(`PS4='+ %[1]s:${LINENO}: '; trap '{ status=$?; set +x; } 2>/dev/null; echo "%[1]s:${LINENO}: exit status ${status}" >&2' ERR; set -Eeux -o pipefail`, f.File)
		}
		last := f.Line + len(f.Lines) + 1
		set(f.Line, "{ echo '"+Mark(f)+"'; } 2>/dev/null; ")
		if f.Refused {
			set(f.Line, "if (")
			set(last, fmt.Sprintf("); then echo '%s: it was to be refused' >&2; exit 1; fi", f.Where()))
		}
		if f.Recipe && f.Language == Options {
			set(f.Line+1, "recipe "+strings.Join(f.Lines, " "))
			continue
		}
		for i, line := range f.Lines {
			set(f.Line+1+i, line)
		}
		if f.Recipe {
			set(last, "recipe")
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// Mark returns the line that a script prints before the commands of a fence run.
func Mark(f Fence) string { return "### " + f.Where() }
