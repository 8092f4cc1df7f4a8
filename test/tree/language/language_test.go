// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

func TestTextsArePlainEnglish(t *testing.T) {
	report, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Units) < 50 {
		t.Fatalf("only %d folders and documents found under %s", len(report.Units), root)
	}
	for _, unit := range slices.Sorted(maps.Keys(report.Findings)) {
		for _, finding := range report.Findings[unit] {
			t.Error(finding)
		}
	}
}

func TestPhrasesAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"StopMPS returns what is left of the daemon.":        "what is",
		"fence gives the first line":                         "gives",
		"Language is empty where the fence names none.":      "where for if",
		"It is undone, where it was done.":                   "where for if",
		"for somebody else to stop":                          "nobody",
		"pauses are those between two scans":                 "those that",
		"It skips those that are taken.":                     "those that",
		"No such daemon is no error.":                        "is no",
		"The agent is told of\nthe change.":                  "programs as persons",
		"between looks while a GPU is missing":               "programs as persons",
		"GPUs lent to a device plugin":                       "lent",
		"settle brings the claim to an end":                  "settle",
		"Recover lets go of the GPU.":                        "tidy",
		"pods that take turns":                               "turns",
		"a piece of a GPU":                                   "pieces",
		"allocated beside a share":                           "surroundings",
		"The folder lies in the root.":                       "stands in",
		"This is part of issue 11.":                          "issue number",
		"The driver numbers the GPUs anew.":                  "anew",
		"It waits until so many pods are ready.":             "so many",
		"Kubectl returns what it prints.":                    "what it does",
		"It leaves other files as they are.":                 "unchanged",
		"the device's memory, whatever is there, is cleared": "what is",
	} {
		found := Find(Text{Comment, 1, text})
		if len(found) != 1 || found[0].Phrase.Name != want {
			t.Errorf("%q: found %v, want %q", text, found, want)
		}
	}
}

func TestALongFirstSentenceIsFound(t *testing.T) {
	sentence := "name" + strings.Repeat(" word", maxWords-1) + "."
	if found := Find(Text{Sentence, 1, sentence}); len(found) > 0 {
		t.Errorf("%d words: found %v", maxWords, found)
	}
	if found := Find(Text{Sentence, 1, "A " + sentence}); len(found) != 1 {
		t.Errorf("%d words: found %v, want one finding", maxWords+1, found)
	}
}

func TestPlainEnglishIsNotFound(t *testing.T) {
	for _, text := range []string{
		"What is a claim?",
		"Where is the log?",
		"Prepare gives up after three attempts.",
		"the folder where the kubelet puts its socket",
		"If there is no daemon, StopMPS succeeds.",
		"The lock is no longer held.",
		"It follows that that is true.",
		"an init container runs as user \"nobody\"",
		"See kubernetes/kubernetes#12345.",
		"It looks like a GPU.",
		"The claim asks for two GPUs.",
		"pins are removed in turn",
		"Helm lets users override it.",
	} {
		if found := Find(Text{Comment, 1, text}); len(found) > 0 {
			t.Errorf("%q: found %q as %q", text, found[0].Quote, found[0].Phrase.Name)
		}
	}
}

func TestNamesAreChecked(t *testing.T) {
	for name, want := range map[string]bool{
		"wishes":                       true,
		"letGoOfGPU":                   true,
		"room":                         true,
		"bathroom":                     false,
		"classRoom":                    false,
		"TestWhatIsLeftOverIsRemoved":  true,
		"TestNobodyElseHoldsTheGPU":    true,
		"TestPrepareReportsFullGPU":    false,
		"lentDevices":                  true,
		"silent":                       false,
		"externalAllocations":          false,
		"returnsWhatIsThereInTestData": false, // only the names of tests are sentences
	} {
		found := Find(Text{Identifier, 1, splitWords(name)})
		if got := len(found) > 0; got != want {
			t.Errorf("%s: found %t, want %t: %v", name, got, want, found)
		}
	}
}

func TestTextsOfAFileAreRead(t *testing.T) {
	for _, c := range []struct {
		file, content string
		want          []Text
	}{
		{"a.go", "// Package a does.\npackage a\n\nfunc readAll() { f(\"cannot read it: %w\", \"one two\") }\n", []Text{
			{Comment, 1, " Package a does."},
			{Sentence, 1, "Package a does."},
			{Identifier, 4, "read all"},
			{Message, 4, "cannot read it: %w"},
		}},
		{"a.md", "# Title\n\nOne\n`two` three.\n\n```sh\nls # all\n```\n\n```text\nls # all\n```\n| a | b |\n", []Text{
			{Document, 1, "# Title"},
			{Document, 3, "One\n`code` three."},
			{Comment, 7, "all"},
			{Document, 13, "| a | b |"},
		}},
		{"a.yaml", "# First\n# second.\na: 'b # c'\nd: e  # f\n{{/* of a\ntemplate */}}\n", []Text{
			{Comment, 5, " of a\ntemplate "},
			{Comment, 1, "First\nsecond."},
			{Comment, 4, "f"},
		}},
		{"templates/a.yaml", "- expression: a in ['b']\n  message: 'one: two three'\n  messageExpression: a ? b + ' is no c' : 'x'\n{{- fail (printf \"no %s here\" $a) -}}\n", []Text{
			{Message, 2, "  message: 'one: two three'"},
			{Message, 3, "  messageExpression: a ? b + ' is no c' : 'x'"},
			{Message, 4, "{{- fail (printf \"no %s here\" $a) -}}"},
		}},
		{"pkg/a.c", "/* One */\nint a; // two\n", []Text{{Comment, 1, " One "}, {Comment, 2, " two"}}},
		{"values.schema.json", "{\n \"description\": \"How many.\"\n}", []Text{{Document, 2, "How many."}}},
		{"NOTES.txt", "All is well.", []Text{{Document, 1, "All is well."}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			got, err := reader(c.file)(c.file, c.content)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("texts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWordsOfANameAreSplit(t *testing.T) {
	for name, want := range map[string]string{
		"readAll":         "read all",
		"GPUConfig":       "gpu config",
		"TestMIGModeIsOn": "test mig mode is on",
		"write_cdi":       "write cdi",
	} {
		if got := splitWords(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
