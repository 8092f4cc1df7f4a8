// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

// script writes a shell script and returns its path.
func script(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyAgentsAreAccepted(t *testing.T) {
	const help = "echo '      --driver-root DIR'; echo '      --offer LIST'; echo '      --mps-supervisor-log FILE'\n"
	for _, c := range []struct {
		name, program string
		// want is a part of the error, or empty if there is none.
		want string
	}{
		{"missing", "/nonexistent/agent", "no such file"},
		{"a folder", t.TempDir(), "permission denied"},
		{"not executable", script(t, 0o600, help), "permission denied"},
		{"another program", "/bin/true", "does not know the flag --driver-root"},
		{"an older agent", script(t, 0o700, help), "does not know the flag --mps-supervisor"},
		{"it fails", script(t, 0o700, "exit 3\n"), "exit status 3"},
		{"an agent", script(t, 0o700, help+"echo '      --mps-supervisor SOCKET'\n"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkAgent(t.Context(), c.program, []string{c.program, "--driver-root=/", "--mps-supervisor="}, []string{c.program, "--offer=mig"})
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.program) || !strings.Contains(err.Error(), "want a gpu-kubelet-plugin") {
				t.Errorf("got %v, want %q, the path and the advice", err, c.want)
			}
		})
	}
}

func TestAnAgentThatEndsAtOnceIsNotWaitedFor(t *testing.T) {
	b := &bench{client: fake.NewClientset(), options: options{dir: t.TempDir()}}
	_, _, err := b.startCommand(t.Context(), []string{script(t, 0o700, "echo no GPU today >&2; exit 3\n")})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no GPU today") {
		t.Errorf("got %v, want the exit status and the output", err)
	}
}
