// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is stale, run make generate (-want +got):\n%s", path, diff)
		}
	}
}

// Documents and tables show the comments, so each constant needs one of its own.
func TestEveryPublicNameIsExplained(t *testing.T) {
	names, err := readNames(filepath.Join(root, namesFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 50 {
		t.Fatalf("%s has only %d constants", namesFile, len(names))
	}
	for _, prefix := range []string{"Attribute", "Capacity", "Taint", "Label", "Annotation"} {
		for _, n := range withPrefix(names, prefix) {
			if n.meaning == "" || strings.Contains(n.meaning, n.constant) {
				t.Errorf("%s: the comment must begin with its name and \"is\", \"says\" or \"marks\"; it is %q", n.constant, n.meaning)
			}
			if n.detail == "" && prefix != "Taint" {
				t.Errorf("%s: the comment behind it must say its type, devices or object", n.constant)
			}
		}
	}
}
