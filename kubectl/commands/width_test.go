// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNarrowTerminalsHaveFewerColumns(t *testing.T) {
	amounts := table{heading: []string{"GPU", "MEMORY", "COMPUTE"}, rows: [][]string{
		{"gpu-1b-00", bar(1, 2) + " 39.5Gi/79.0Gi", bar(0, 1) + " 0%"}, {"gpu-43-00", "-", bar(1, 1) + " 7/7 slices"},
	}}
	for width, want := range map[int]string{
		60: `
GPU         MEMORY                     COMPUTE
gpu-1b-00   █████░░░░░ 39.5Gi/79.0Gi   ░░░░░░░░░░ 0%
gpu-43-00   -                          ██████████ 7/7 slices
`,
		59: `
GPU         MEMORY          COMPUTE
gpu-1b-00   39.5Gi/79.0Gi   0%
gpu-43-00   -               7/7 slices
`,
		37: `
GPU         MEMORY
gpu-1b-00   39.5Gi/79.0Gi
gpu-43-00   -
`,
	} {
		var out strings.Builder
		must(t, amounts.write(&out, tableStyle{width: width}))
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
	var out strings.Builder
	must(t, table{heading: []string{"FOUND"}, rows: [][]string{{"first\nsecond\r\n"}}}.write(&out, tableStyle{}))
	if want := "FOUND\nfirst second\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if width := terminalWidth(&strings.Builder{}); width != 0 {
		t.Errorf("another output has the width %d", width)
	}
}
