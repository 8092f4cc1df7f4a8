// SPDX-License-Identifier: Apache-2.0

// Package imports keeps packages out of programs that must not be linked with them.
// Which package may import which is checked by depguard, see .golangci.yml.
package imports

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpu-dra/gpu-dra-driver/"

// Production programs hold no simulator. Programs built with the tag sim do, which
// shows that the list of dependencies is complete.
func TestOnlyProgramsBuiltWithTheTagSimHoldTheSimulator(t *testing.T) {
	for _, program := range []string{"gpu-kubelet-plugin", "gpu-mps-supervisor"} {
		for _, tags := range []string{"", "sim"} {
			held := slices.ContainsFunc(dependencies(t, "cmd/"+program, tags), func(path string) bool {
				return strings.HasPrefix(path, module+"pkg/nvmlsim")
			})
			if held != (tags == "sim") {
				t.Errorf("%s built with the tags %q depends on pkg/nvmlsim: %v", program, tags, held)
			}
		}
	}
}

func TestTheAgentDoesNotHoldTheSupervisor(t *testing.T) {
	for program, want := range map[string]bool{"gpu-kubelet-plugin": false, "gpu-mps-supervisor": true} {
		if held := slices.Contains(dependencies(t, "cmd/"+program, ""), module+"pkg/mps/supervisor"); held != want {
			t.Errorf("%s depends on pkg/mps/supervisor: %v, want %v", program, held, want)
		}
	}
}

// dependencies returns the packages that a program is linked from.
func dependencies(t *testing.T, folder, tags string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags="+tags, module+folder).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", folder, err)
	}
	return strings.Fields(string(out))
}
