// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
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
		26: `
CLAIM         NODE
a-lon…-bdh6x  a-nod…a-name
short         b
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
	var out strings.Builder
	must(t, table{heading: []string{"FOUND"}, rows: [][]string{{"first\nsecond\r\n"}}}.write(&out, tableStyle{}))
	if want := "FOUND\nfirst second\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if width := terminalWidth(&strings.Builder{}); width != 0 {
		t.Errorf("another output has the width %d", width)
	}
}

// The longest names of managed clusters, and the longest health.
func TestATerminalOf80ColumnsHoldsTheTables(t *testing.T) {
	var out strings.Builder
	o := &options{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, width: func() int { return 80 }}
	node := "gke-training-a3-highgpu-8g-5f1c9d2e-x7kq"
	long := metav1.NewTime(time.Now().Add(-50 * time.Hour))
	silent := rows.Health{State: rows.HealthUnknown, Reasons: []rows.Reason{{Code: rows.CodeAgentNotReady, Since: &long}}, Published: &long}
	gib := resource.MustParse("79Gi")
	var gpus []rows.Topology
	for i := range 8 {
		gpus = append(gpus, rows.Topology{Name: fmt.Sprintf("gpu-%02d-00", i), NUMANode: "0", PCIeRoot: "pci0000:00", Paths: slices.Repeat([]fleet.Path{"NV18"}, 8), Claims: []string{"research/training-gpu-bdh6x"}})
	}
	for name, tc := range map[string]struct {
		print func() error
		want  []string
	}{
		"get": {func() error {
			return o.printGPUs([]rows.GPU{{Node: node, Name: "gpu-1b-00", Model: "NVIDIA H100 80GB HBM3", Mode: "timeslice", Memory: gib, MemoryPromised: gib, Compute: 100, Claims: 12, Health: silent}})
		}, []string{"gke-t…e-x7kq", "79.0Gi/79.0Gi", "unknown: agent"}},
		"who": {func() error {
			return o.printHolders([]rows.Holder{{Namespace: "research", Pod: "training-5b7f9c6d8-x2x9z", Container: "main", Claim: "training-5b7f9c6d8-x2x9z-gpu-bdh6x", Node: node, Device: "gpu-1b-00", Memory: gib, Health: silent}}, "")
		}, []string{"train…-x2x9z", "train…-bdh6x", "79.0Gi", "published"}},
		"topo": {func() error { return o.printTopology(gpus) }, []string{"07-00", "NV18", "NUMA"}},
		"free": {func() error {
			return o.printFree([]rows.Free{{Class: "mig-1g.12gb.gpu.nvidia.com", Memory: &gib, Node: node, Claims: 7}})
		}, []string{"mig-1g.12gb.gpu.nvidia.com"}},
		"plan": {func() error {
			return o.printPlan(&planResult{Workloads: []planItem{{Namespace: "research", Workload: "StatefulSet/pretraining-of-a-language-model", Pods: 24, Fit: 24, Nodes: map[string]int{node: 8, node + "2": 8, node + "3": 8}}}})
		}, []string{node, node + "3"}},
		"doctor": {func() error {
			return o.printFindings([]doctor.Finding{{Check: "containers", Code: "share-without-memory-limit", Object: "pod research/training-5b7f9c6d8-x2x9z", State: doctor.Warning, Found: "the agent of 3 nodes runs the release v0.9.0,\nand the chart is of v0.10.0"}}, false)
		}, []string{"share-without-memory-limit", "the agent", "v0.10.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			must(t, tc.print())
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 || strings.Contains(line, `\n`) {
					t.Errorf("%d characters: %s", n, line)
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q", want)
				}
			}
			t.Logf("\n%s", out.String())
		})
	}
}
