// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestNarrowTerminalsHaveFewerColumns(t *testing.T) {
	amounts := rows.Table{Heading: []string{"GPU", "MEMORY", "COMPUTE"}, Rows: [][]string{
		{"gpu-1b-00", "39.5Gi/79.0Gi", "0%"}, {"gpu-43-00", "-", "7/7 slices"},
	}}
	for width, want := range map[int]string{
		0: `
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
		require.NoError(t, writeTable(&out, amounts, false, width))
		require.Same(t, fmt.Sprint("width ", width), strings.TrimPrefix(want, "\n"), out.String())
	}
	var out strings.Builder
	require.NoError(t, writeTable(&out, rows.Table{Heading: []string{"FOUND"}, Rows: [][]string{{"first\nsecond\r\n"}}}, false, 0))
	if want := "FOUND\nfirst second\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if width := terminalWidth(&strings.Builder{}); width != 0 {
		t.Errorf("another output has the width %d", width)
	}
}
