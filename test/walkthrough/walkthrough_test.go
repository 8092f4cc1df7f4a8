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

	"github.com/gpu-dra/gpu-dra-driver/test/markdown"
)

func TestTheDocuments(t *testing.T) {
	must(t, clean.Restore(t.Context()))
	files, err := markdown.Files(cluster.Root)
	must(t, err)
	var notRun []markdown.Fence
	unused := maps.Clone(scenes)
	for _, file := range files {
		found := fences(t, file)
		for _, f := range found {
			if f.NotRun != "" {
				notRun = append(notRun, f)
			}
		}
		if parts := markdown.Parts(found); len(parts) > 0 {
			delete(unused, file)
			t.Run(file, func(t *testing.T) { follow(t, file, parts, found) })
		}
	}
	for _, file := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("scenes has %s, which has no commands", file)
	}
	for _, f := range notRun {
		t.Logf("NOT RUN %s: %s", f.Where(), f.NotRun)
	}
}

// follow runs the commands of a document and checks their output.
func follow(t *testing.T, file string, parts [][]markdown.Fence, all []markdown.Fence) {
	t.Cleanup(func() { must(t, clean.Restore(context.WithoutCancel(t.Context()))) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var printed strings.Builder
	for i, part := range parts {
		if i > 0 {
			must(t, clean.Restore(ctx))
		}
		scenes[file].set(ctx, t, file)
		out, err := desk.run(ctx, file, part, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		printed.WriteString(out)
	}
	for _, promise := range scenes[file].printed {
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
