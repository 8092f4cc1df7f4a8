// SPDX-License-Identifier: Apache-2.0

// Package markdown reads the fenced blocks of the repository's documents. Tests run
// their commands and check the rest.
//
// A comment on the line before a fence of commands marks a special case:
//
//	<!-- not run by a test: REASON -->
//	<!-- refused -->       the last command must fail
//	<!-- begins anew -->   the fence runs in a new shell, on a cluster without the driver
//	<!-- the recipe -->    the reader then installs the driver as docs/admin/install.md says
//
// The last one can also precede a fence of text, which has options of helm install and runs in a new shell too.
package markdown

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Commands is the language of fences with commands for bash.
const Commands = "sh"

// Options is the language of a fence with options of helm install.
const Options = "text"

// Fence is a fenced block of a document.
type Fence struct {
	// File is the document, relative to the top of the repository. Line is the
	// line of the opening fence, from 1.
	File string
	Line int
	// Language is "" if the opening fence names none.
	Language string
	// Lines between the fences, without the indentation of the opening one.
	Lines []string

	// NotRun is the reason why no test runs these commands, or "".
	NotRun string
	// Refused is set if the last of these commands must fail.
	Refused bool
	// Anew is set if the fence is an alternative to the fences above it.
	Anew bool
	// Recipe is set if the reader installs the driver after these commands, or with
	// these options.
	Recipe bool
}

// Where returns the fence's name for messages: "docs/admin/install.md:28".
func (f Fence) Where() string { return fmt.Sprintf("%s:%d", f.File, f.Line) }

// Files lists all documents below the top of the repository, relative to it and
// sorted. Hidden folders, which git ignores, are left out.
func Files(top string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ".md":
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// Read returns the fences of a document, named as by [Files].
func Read(top, file string) ([]Fence, error) {
	text, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		return nil, err
	}
	return Parse(file, string(text))
}

var (
	fence = regexp.MustCompile("^( *)```([^`]*)$")
	note  = regexp.MustCompile(`^ *<!-- (.*) -->$`)
)

// Parse returns the fences of a document's text. It fails for a fence that never ends
// and for an unknown comment before a fence.
func Parse(file, text string) ([]Fence, error) {
	var fences []Fence
	var errs []error
	var open *Fence
	indent, before := "", ""
	for i, line := range strings.Split(text, "\n") {
		found := fence.FindStringSubmatch(line)
		switch {
		case open == nil && found != nil:
			indent = found[1]
			open = &Fence{File: file, Line: i + 1, Language: strings.TrimSpace(found[2])}
			if err := open.obey(before); err != nil {
				errs = append(errs, err)
			}
		case found != nil:
			fences, open = append(fences, *open), nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, indent))
		}
		before = line
	}
	if open != nil {
		errs = append(errs, fmt.Errorf("%s: the fence never ends", open.Where()))
	}
	return fences, errors.Join(errs...)
}

// obey sets the fields that the comment on the line before the fence determines.
func (f *Fence) obey(line string) error {
	found := note.FindStringSubmatch(line)
	if found == nil {
		return nil
	}
	if found[1] == "the recipe" && f.Language == Options {
		f.Recipe, f.Anew = true, true
		return nil
	}
	if f.Language != Commands {
		return fmt.Errorf("%s: a comment before a fence is for commands (%s), not for %q", f.Where(), Commands, f.Language)
	}
	reason, notRun := strings.CutPrefix(found[1], "not run by a test: ")
	switch {
	case notRun && reason != "":
		f.NotRun = reason
	case found[1] == "refused":
		f.Refused = true
	case found[1] == "begins anew":
		f.Anew = true
	case found[1] == "the recipe":
		f.Recipe = true
	default:
		return fmt.Errorf("%s: the comment before it is %q: want \"not run by a test: REASON\", \"refused\", \"begins anew\" or \"the recipe\"", f.Where(), found[1])
	}
	return nil
}
