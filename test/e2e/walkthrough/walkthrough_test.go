// SPDX-License-Identifier: Apache-2.0

package walkthrough

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

func TestTheDocuments(t *testing.T) {
	must(t, clean.Restore(t.Context()))
	files, err := markdown.Files(cluster.Root)
	must(t, err)
	var notRun []markdown.Fence
	unused := maps.Clone(scenes)
	var apart, together []string
	for _, file := range files {
		found := fences(t, file)
		for _, f := range found {
			if f.NotRun != "" {
				notRun = append(notRun, f)
			}
		}
		if len(markdown.Parts(found)) == 0 {
			continue
		}
		delete(unused, file)
		if scenes[file].common() {
			together = append(together, file)
		} else {
			apart = append(apart, file)
		}
	}
	s := &stage{}
	for _, file := range slices.Concat(apart, together) {
		t.Run(file, func(t *testing.T) { s.follow(t, file) })
	}
	must(t, clean.Restore(t.Context()))
	for _, file := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("scenes has %s, which has no commands", file)
	}
	for _, f := range notRun {
		t.Logf("NOT RUN %s: %s", f.Where(), f.NotRun)
	}
}

// stage is the cluster between documents. Those with the most common scene follow each other
// with one installed driver, as long as none changes it.
type stage struct {
	// installed is the cluster with that driver, and nil without it.
	installed *harness.Baseline
	// release is what helm then knew of it.
	release string
}

// follow runs the commands of a document and checks their output.
func (s *stage) follow(t *testing.T, file string) {
	scene, all := scenes[file], fences(t, file)
	t.Cleanup(func() { must(t, s.clear(context.WithoutCancel(t.Context()))) })
	parts := markdown.Parts(all)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(parts))*10*time.Minute)
	defer cancel()
	var printed strings.Builder
	for i, part := range parts {
		if i > 0 {
			must(t, s.clear(ctx))
		}
		s.set(ctx, t, file, i)
		out, err := desk.run(ctx, file, part, t.Output())
		must(t, err)
		printed.WriteString(out)
	}
	for _, promise := range scene.printed {
		if !strings.Contains(spaced(untraced.ReplaceAllString(printed.String(), "")), promise) {
			t.Errorf("no command of %s has printed %q", file, promise)
		}
	}
	for i, f := range all {
		if f.Refused && i+1 < len(all) && all[i+1].Language == "text" {
			wantAnswer(t, printed.String(), f, all[i+1])
		}
	}
}

// set brings an empty cluster into the scene of a part of a document.
func (s *stage) set(ctx context.Context, t *testing.T, file string, part int) {
	t.Helper()
	if s.installed != nil {
		return // only common scenes are left
	}
	scenes[file].part(part).set(ctx, t, file, part)
	if !scenes[file].common() {
		return
	}
	var err error
	s.release, err = driverRelease(ctx)
	must(t, err)
	s.installed, err = harness.NewBaseline(ctx, cluster)
	must(t, err)
}

// clear removes what a document has left.
func (s *stage) clear(ctx context.Context) error {
	if s.installed != nil {
		if now, err := driverRelease(ctx); err == nil && now == s.release {
			return s.installed.Restore(ctx)
		}
	}
	s.installed = nil
	return clean.Restore(ctx)
}

// driverRelease is helm's entry of the driver, which each upgrade changes.
func driverRelease(ctx context.Context) (string, error) {
	return cluster.Helm(ctx, "list", "--all-namespaces", "--output", "json")
}

// untraced matches the lines in which bash prints a command before it runs.
var untraced = regexp.MustCompile(`(?m)^\++ .*\n`)

// spaced replaces the space between columns by single spaces.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// wantAnswer fails if the commands of a fence have not printed what the document
// shows after it. Dots stand for differing parts.
func wantAnswer(t *testing.T, printed string, commands, answer markdown.Fence) {
	t.Helper()
	_, got, _ := strings.Cut(printed, markdown.Mark(commands)+"\n")
	got, _, _ = strings.Cut(got, "\n### ")
	for _, line := range answer.Lines {
		for _, piece := range strings.Split(line, "…") {
			if piece = strings.TrimSpace(piece); !strings.Contains(got, piece) {
				t.Errorf("%s: nothing printed %q, but:\n%s", answer.Where(), piece, got)
			}
		}
	}
}
