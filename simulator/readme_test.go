// SPDX-License-Identifier: Apache-2.0

// Package simulator_test runs the commands of the README.
package simulator_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The commands run as a stranger runs them: in a copy of this folder, without a cluster and
// without our Go code in Python and C programs.
func TestTheREADMEPrintsWhatItShows(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir + "/bin"); err != nil {
		t.Fatal(err)
	}
	// make prints how it builds.
	script, want := "set -euo pipefail\nmake() { command make \"$@\" > make.log 2>&1 || { cat make.log; return 1; }; }\n", ""
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(text, -1) {
		for line := range strings.Lines(string(block[1])) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script += command
			} else {
				want += line
			}
		}
	}
	if !strings.Contains(script, "mig.py") || !strings.Contains(script, "xid.c") {
		t.Fatal("the README does not run the examples")
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), log.String())
	}
	if got := out.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s\n%s", got, want, log.String())
	}
}
