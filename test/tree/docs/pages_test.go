// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostWords is the most words of a page, as wc counts them: with its tables and commands, and without
// generated texts, which readers look up by a name.
const mostWords = 1500

var generated = regexp.MustCompile(`(?s)<!-- begin generated: .*?<!-- end generated -->`)

// pages returns the documents below docs, and the README of each demo.
func pages(t *testing.T) []string {
	t.Helper()
	found := slices.DeleteFunc(documents(t), func(doc string) bool {
		return !strings.HasPrefix(doc, "docs/") && !strings.HasPrefix(doc, "demo/")
	})
	if len(found) < 60 {
		t.Fatalf("%d pages below docs and demo", len(found))
	}
	return found
}

// A reader of a page wants to do one thing, and reads it to its end.
func TestNoPageIsLong(t *testing.T) {
	for _, doc := range pages(t) {
		if words := len(strings.Fields(generated.ReplaceAllString(read(t, doc), ""))); words > mostWords {
			t.Errorf("%s has %d words, the most is %d: split it by what a reader wants to do", doc, words, mostWords)
		}
	}
}

// A page that no index has is found by search only. The decisions have an index of their own.
func TestTheIndexHasEveryPage(t *testing.T) {
	const index = "docs/README.md"
	linked := map[string]bool{index: true}
	for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)`).FindAllStringSubmatch(read(t, index), -1) {
		linked[path.Join(path.Dir(index), m[1])] = true
	}
	for _, doc := range pages(t) {
		if path.Dir(doc) == "docs/dev/decisions" {
			doc = "docs/dev/decisions/README.md"
		}
		if strings.HasPrefix(doc, "docs/") && !linked[doc] {
			t.Errorf("%s does not link to %s", index, doc)
		}
	}
}
