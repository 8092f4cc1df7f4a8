// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// mutant is one change of the code that a test must detect.
type mutant struct {
	// file is the path of the mutated file below the root of the module.
	file string
	// old is the text to replace. It must be in the file exactly once.
	old string
	// new is the replacement.
	new string
	// notice describes the effect on a user, an administrator or the hardware.
	notice string

	// run is the pattern of the tests to run, as for go test -run. It saves time in
	// packages with slow tests.
	run string
	// tests is the directory of the tests; empty for the directory of the file.
	tests string
	// hangs is set if the mutant makes a test hang. It is the time after which the
	// test counts as hung.
	hangs time.Duration
	// excuse is the reason why no test can detect the mutant, or empty.
	excuse string
}

// testLimit is the timeout of the tests of one mutant.
const testLimit = 3 * time.Minute

// folder returns the directory of the tests that must detect the mutant.
func (m mutant) folder() string {
	if m.tests != "" {
		return m.tests
	}
	return path.Dir(m.file)
}

// name returns the file and line of the mutation.
func (m mutant) name(source string) string {
	before, _, _ := strings.Cut(source, m.old)
	// old may begin with the line break before its first line.
	blank := len(m.old) - len(strings.TrimLeft(m.old, "\n"))
	return fmt.Sprintf("%s:%d", m.file, 1+blank+strings.Count(before, "\n"))
}

// apply returns the source with the mutation.
func (m mutant) apply(source string) (string, error) {
	switch count := strings.Count(source, m.old); {
	case m.old == m.new:
		return "", fmt.Errorf("%s: the mutation of %q changes nothing", m.file, m.old)
	case count != 1:
		return "", fmt.Errorf("%s: %q is in the file %d times, want once: bring the list of mutants up to date", m.file, m.old, count)
	}
	return strings.Replace(source, m.old, m.new, 1), nil
}

// overlay writes the mutated file and a file for go build -overlay to dir. It returns
// the name of the mutation and the path of the overlay file.
func (m mutant) overlay(root, dir string) (name, overlay string, err error) {
	real := filepath.Join(root, m.file)
	source, err := os.ReadFile(real)
	if err != nil {
		return m.file, "", err
	}
	name = m.name(string(source))
	mutated, err := m.apply(string(source))
	if err != nil {
		return name, "", err
	}
	instead := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(instead, []byte(mutated), 0o600); err != nil {
		return name, "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {real: instead}})
	if err != nil {
		return name, "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return name, overlay, os.WriteFile(overlay, text, 0o600)
}
