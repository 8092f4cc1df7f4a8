// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The tables that quote events in their first column. A quote has "…" where the
// text differs from case to case; a cell without it is not a quote.
var quoting = regexp.MustCompile(`(?m)^\| (?:event of the pod|text|the event is about|symptom) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)`)

func TestQuotedEventsAreWhatTheProgramsSay(t *testing.T) {
	said := programTexts(t)
	quotes := map[string]int{}
	for _, doc := range documents(t) {
		for _, table := range quoting.FindAllStringSubmatch(read(t, doc), -1) {
			for row := range strings.Lines(table[1]) {
				for _, quote := range quotesOf(strings.Split(row, "|")[1]) {
					quotes[doc]++
					for _, piece := range pieces(quote) {
						if !said(piece) {
							t.Errorf("%s quotes %q, and no program says %q", doc, quote, piece)
						}
					}
				}
			}
		}
	}
	for doc, least := range map[string]int{"docs/admin/mig.md": 3, eventsPage: 15, "docs/admin/operate.md": 2} {
		if quotes[doc] < least {
			t.Errorf("%s quotes %d events, want %d at least: are its tables written in another way now?", doc, quotes[doc], least)
		}
	}
}

// One vocabulary: the words of events, and the reasons of conditions.
func TestTheWordsOfEventsInTheReferenceAreTheSentinels(t *testing.T) {
	_, table, found := strings.Cut(read(t, eventsPage), "| words | reason | cause | does waiting help? |\n|---|---|---|---|\n")
	if !found {
		t.Fatalf("%s has no table of them", eventsPage)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	reasons := map[string]string{}
	for _, err := range []error{
		gpu.ErrNotFound, gpu.ErrInUse, gpu.ErrNoCapacity, gpu.ErrNotSupported, gpu.ErrInvalid, gpu.ErrNotReady,
		gpu.ErrLost, gpu.ErrUnhealthy, gpu.ErrPermission, gpu.ErrTimeout, gpu.ErrCorrupt,
	} {
		reasons[err.Error()] = report.Reason(err)
	}
	var got []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		words := strings.TrimSpace(cells[1])
		got = append(got, words)
		if want := "`" + reasons[words] + "`"; strings.TrimSpace(cells[2]) != want {
			t.Errorf("%s says that the condition for %q has the reason %s, the agent writes %s", eventsPage, words, cells[2], want)
		}
	}
	for _, reason := range []string{report.ReasonPrepared, report.ReasonPrepareFailed} {
		if !strings.Contains(read(t, eventsPage), "`"+reason+"`") {
			t.Errorf("%s lacks the reason %s", eventsPage, reason)
		}
	}
	slices.Sort(got)
	require.Same(t, "sentinels", sentinels(t), got)
}

// Programs link to documents by gpu.Page: users have no copy of the repository. The path is a
// string of its own, with the section.
func TestDocumentsThatProgramsNameExist(t *testing.T) {
	named := regexp.MustCompile(`docs/[\w/-]+\.md(?:#[\w-]+)?`)
	found := 0
	for _, folder := range []string{"pkg", "cmd", "api"} {
		for _, text := range literals(t, folder) {
			for _, link := range named.FindAllString(text, -1) {
				found++
				path, anchor, _ := strings.Cut(link, "#")
				if link != text {
					t.Errorf("a program says %q: the link must be an address, made by gpu.Page(%q)", text, link)
				}
				// The documents of findings get the section from its code.
				ofFindings, _ := filepath.Match("docs/admin/[cdf]*.md", path)
				if (anchor != "" || !ofFindings) && !slices.Contains(anchors(read(t, path)), anchor) {
					t.Errorf("a program names %s, and the document has no such section", link)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("programs name %d documents, want more: are they named in another way now?", found)
	}
}

// quotesOf returns the quotes in a cell: the texts in quotation marks, or all of the
// cell if it has none.
func quotesOf(cell string) []string {
	quotes := []string{strings.TrimSpace(cell)}
	if strings.Contains(cell, `"`) {
		quotes = nil
		for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(cell, -1) {
			quotes = append(quotes, m[1])
		}
	}
	return slices.DeleteFunc(quotes, func(quote string) bool { return !strings.Contains(quote, "…") })
}

// pieces are what stands between the "…" of a quote.
func pieces(quote string) []string {
	var all []string
	for piece := range strings.SplitSeq(quote, "…") {
		if piece = strings.Trim(piece, " :;,."); piece != "" {
			all = append(all, piece)
		}
	}
	return all
}

// programTexts returns a function that reports whether a string of the programs
// contains a text, in whole words. Each sentinel can replace a %w of the string, and
// the name of one of the NVIDIA driver's programs its first %s.
func programTexts(t *testing.T) func(text string) bool {
	t.Helper()
	var all strings.Builder
	known := sentinels(t)
	for _, folder := range []string{"pkg", "cmd", "api"} {
		for _, text := range literals(t, folder) {
			all.WriteString(text + "\n")
			for _, program := range []string{"nvidia-cuda-mps-control", "nvidia-smi"} {
				all.WriteString(strings.Replace(text, "%s", program, 1) + "\n")
			}
			for _, sentinel := range known {
				all.WriteString(strings.ReplaceAll(text, "%w", sentinel) + "\n")
			}
		}
	}
	sources := all.String()
	return func(text string) bool {
		for from := 0; ; {
			found := strings.Index(sources[from:], text)
			if found < 0 {
				return false
			}
			at := from + found
			from = at + 1
			before, _ := utf8.DecodeLastRuneInString(sources[:at])
			after, _ := utf8.DecodeRuneInString(sources[at+len(text):])
			if !unicode.IsLetter(before) && !unicode.IsLetter(after) {
				return true
			}
		}
	}
}

// sentinels are the texts of the driver's sentinel errors, sorted.
func sentinels(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`errors\.New\("([^"]+)"\)`).FindAllStringSubmatch(read(t, "pkg/gpu/errors.go"), -1) {
		found[m[1]] = true
	}
	if len(found) < 5 {
		t.Fatalf("pkg/gpu/errors.go has the sentinels %v only", found)
	}
	return slices.Sorted(maps.Keys(found))
}

// literals returns the strings in the Go files of a folder, without its tests.
func literals(t *testing.T, folder string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %s: %v", path, literal.Value, err)
				}
				all = append(all, value)
			}
			return true
		})
		return nil
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%s has %d strings: %v", folder, len(all), err)
	}
	return all
}
