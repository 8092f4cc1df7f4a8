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

func TestAnAgentThatEndsAtOnceIsNotWaitedFor(t *testing.T) {
	b := &bench{client: fake.NewClientset(), dir: t.TempDir()}
	_, _, err := b.startCommand(t.Context(), []string{script(t, 0o700, "echo no GPU today >&2; exit 3\n")})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no GPU today") {
		t.Errorf("got %v, want the exit status and the output", err)
	}
}
