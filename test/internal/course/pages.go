// SPDX-License-Identifier: Apache-2.0

// Package course lists the pages of exercises in demo/ and the simulated node of each.
//
// The commands of a page run in two places: test/demo runs them for `make demo STORY=course`, and
// test/e2e/walkthrough runs them as a test. Both start the same node from here.
package course

import (
	"context"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// Page is a document with exercises and the node on which its commands run.
type Page struct {
	// Name of the page for messages and flags.
	Name string
	// File is the document, relative to the top of the repository.
	File string
	// Part is the index of the page's commands in markdown.Parts.
	Part int
	// Model of the simulated node, by name or file.
	Model string
	// Flags of the agent beyond the usual ones.
	Flags []string
	// NodeConfigs are the named configurations of the chart.
	NodeConfigs map[string]any
	// Layouts is a file of mig-parted, relative to the top of the repository, or "".
	Layouts string
	// Driver says that containers can use GPUs without MPS: the simulated driver runs.
	Driver bool
	// Namespaces that the page creates.
	Namespaces []string
}

// Pages returns all pages in the order of the course.
func Pages() []Page {
	return []Page{
		{
			Name: "lab", File: "demo/course/lab/README.md", Model: "demo/course/lab/one-t4.yaml",
			NodeConfigs: map[string]any{
				"timeslice-4": slices(4),
				"timeslice-8": slices(8),
			},
			Driver: true, Namespaces: []string{"inference-test", "crowded"},
		},
		{
			Name: "mig", File: "demo/course/mig/README.md", Model: "demo/fleet/ten-a100.yaml",
			Flags: []string{"--mig-allow-reset"},
			NodeConfigs: map[string]any{
				"three-teams":  layout([]string{"share", "mig", "timeslice"}, "three-teams"),
				"combinations": layout([]string{"share", "mig"}, "combinations"),
				"by-day":       layout([]string{"share", "mig"}, "halves"),
				"by-night":     map[string]any{"offer": []string{"share"}},
				"on-demand":    map[string]any{"offer": []string{"share", "mig"}, "mig": map[string]any{"profiles": "all"}},
			},
			Layouts:    "demo/course/mig/layouts.yaml",
			Namespaces: []string{"training", "serving", "notebooks", "combinations", "hours", "gpu-hours"},
		},
		{Name: "dra", File: "demo/course/README.md", Model: "dgx-a100", Flags: []string{"--offer=share,timeslice"}, Namespaces: []string{"ml-team"}},
		{Name: "four-gpus", File: "demo/course/four-gpus/README.md", Model: "demo/course/four-gpus/four-pcie.yaml", Flags: []string{"--attributes=standard,pcieSwitch"}, Namespaces: []string{"pairs"}},
		{Name: "war-story", File: "demo/course/README.md", Part: 1, Model: "dgx1-v100", Namespaces: []string{"war-story"}},
		{Name: "training", File: "demo/training/README.md", Model: "dgx-a100", Namespaces: []string{"training"}},
		{Name: "prefill-decode", File: "demo/training/README.md", Part: 1, Model: "dgx-h100", Namespaces: []string{"prefill-decode"}},
		{Name: "acceptance", File: "demo/training/README.md", Part: 2, Model: "dgx-h100", Driver: true, Namespaces: []string{"acceptance"}},
	}
}

// slices returns a node configuration with a number of time slices for each GPU.
func slices(slots int) map[string]any {
	return map[string]any{"offer": []string{"share", "timeslice"}, "timeslice": map[string]any{"slots": slots}}
}

// layout returns a node configuration with a layout of MIG devices.
func layout(offer []string, name string) map[string]any {
	return map[string]any{"offer": offer, "timeslice": map[string]any{"slots": 12}, "mig": map[string]any{"layout": name}}
}

// Find returns the page of a part of a document, and false if there is none.
func Find(file string, part int) (Page, bool) {
	for _, p := range Pages() {
		if p.File == file && p.Part == part {
			return p, true
		}
	}
	return Page{}, false
}

// Start installs the driver on the page's node and waits until it is ready.
func (p Page) Start(ctx context.Context, cluster *harness.Cluster) (*harness.Agent, error) {
	agent := cluster.NewAgent(p.Model, p.Flags...)
	agent.NodeConfigs = p.NodeConfigs
	if p.Layouts != "" {
		text, err := os.ReadFile(filepath.Join(cluster.Root, p.Layouts))
		if err != nil {
			return nil, err
		}
		agent.MIGLayouts = string(text)
	}
	if p.Driver {
		if err := agent.StartDriver(ctx); err != nil {
			return nil, err
		}
	}
	return agent, agent.Start(ctx)
}
