// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/course"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

// exercises returns a story for each page of the course. The story "course" is the first
// one, and each leads to the next.
func exercises() map[string]story {
	all := map[string]story{}
	pages := course.Pages()
	for i := range pages {
		next := ""
		if i+1 < len(pages) {
			next = "course-" + pages[i+1].Name
		}
		all["course-"+pages[i].Name] = story{page: &pages[i], then: next}
	}
	all["course"] = all["course-"+pages[0].Name]
	return all
}

// practise runs the commands of a page on its node and prints them with their output.
func practise(ctx context.Context, cluster *harness.Cluster, page course.Page) (*harness.Agent, error) {
	for _, ns := range page.Namespaces {
		if err := cluster.DeleteNamespace(ctx, ns); err != nil {
			return nil, err
		}
	}
	say("installing the Helm chart, for a simulated %s", page.Model)
	agent, err := page.Start(ctx, cluster)
	if err != nil {
		return nil, err
	}
	fences, err := markdown.Read(cluster.Root, page.File)
	if err != nil {
		return nil, err
	}
	parts := markdown.Parts(fences)
	if page.Part >= len(parts) {
		return nil, fmt.Errorf("%s: its commands are for %d shells, and the page %s is number %d", page.File, len(parts), page.Name, page.Part+1)
	}
	say("running the commands of %s", page.File)
	bin, err := filepath.Abs(cluster.Bin)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", markdown.Script(parts[page.Part]))
	cmd.Dir = cluster.Root
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+strings.Join([]string{cluster.BinDir, bin, os.Getenv("PATH")}, ":"))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", page.File, err)
	}
	return agent, nil
}
