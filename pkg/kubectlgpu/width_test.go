// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestNarrowTerminalsShortenModelsAndClaims(t *testing.T) {
	wide := table{heading: []string{"CLAIM", "NODE", "MODEL"}, rows: [][]string{
		{"a-long-name-of-a-pod-gpu-bdh6x", "a-node-with-a-name", "NVIDIA H100 80GB HBM3"},
		{"short", "b", "Tesla T4"},
	}}
	for width, want := range map[int]string{
		0: `
CLAIM                            NODE                 MODEL
a-long-name-of-a-pod-gpu-bdh6x   a-node-with-a-name   NVIDIA H100 80GB HBM3
short                            b                    Tesla T4
`,
		65: `
CLAIM                  NODE                 MODEL
a-long-name-o…-bdh6x   a-node-with-a-name   NVIDIA H100 80GB HBM3
short                  b                    Tesla T4
`,
		20: `
CLAIM         NODE                MODEL
a-lon…-bdh6x  a-node-with-a-name  NVIDIA H100…
short         b                   Tesla T4
`,
	} {
		var out strings.Builder
		must(t, wide.write(&out, tableStyle{width: width}))
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); width == 65 && n > width {
				t.Errorf("a line has %d characters", n)
			}
		}
	}
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
GPU        MEMORY         COMPUTE
gpu-1b-00  39.5Gi/79.0Gi  0%
gpu-43-00  -              7/7 slices
`,
	} {
		var out strings.Builder
		must(t, amounts.write(&out, tableStyle{width: width}))
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
	if width := terminalWidth(&strings.Builder{}); width != 0 {
		t.Errorf("another output has the width %d", width)
	}
}
