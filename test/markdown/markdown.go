// SPDX-License-Identifier: Apache-2.0

// Package markdown finds what the repository's documents have in fences, so that
// tests can run the commands and judge the rest.
//
// A comment on the line before a fence of commands says what is special about
// it:
//
//	<!-- not run by a test: REASON -->
//	<!-- refused -->       its last command fails, and is meant to
//	<!-- begins anew -->   in a new shell, on a cluster without the driver
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

// Fence is a fenced block of a document.
type Fence struct {
	// File is the document, relative to the top of the repository. Line is that
	// of the opening fence, from 1.
	File string
	Line int
	// Language is "" where the opening fence names none.
	Language string
	// Lines between the fences, without the indentation of the opening one.
	Lines []string

	// NotRun is the reason why no test runs these commands, "" where one does.
	NotRun string
	// Refused says that the last of these commands fails, and is meant to.
	Refused bool
	// Anew says that what stands above is another way to the same end.
	Anew bool
}

// Where names the fence in messages: "docs/install.md:28".
func (f Fence) Where() string { return fmt.Sprintf("%s:%d", f.File, f.Line) }

// Files are all documents below the top of the repository, relative to it and
// in order. What git ignores lies in hidden folders.
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

// Read reads the fences of a document, which is named as [Files] does.
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

// Parse reads the fences of a document's text. It fails for a fence that never
// ends and for comments that say nothing it knows.
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

// obey takes what the line before the fence says of it.
func (f *Fence) obey(line string) error {
	found := note.FindStringSubmatch(line)
	if found == nil {
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
	default:
		return fmt.Errorf("%s: the comment before it is %q: want \"not run by a test: REASON\", \"refused\" or \"begins anew\"", f.Where(), found[1])
	}
	return nil
}
