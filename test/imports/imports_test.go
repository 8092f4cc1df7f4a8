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

// The programs that the tests run are the ones that users run. gpu-sim holds the simulator,
// which shows that the list is complete.
func TestOnlyTheSimulatorsOwnProgramHoldsIt(t *testing.T) {
	for program, want := range map[string]bool{"gpu-kubelet-plugin": false, "gpu-mps-supervisor": false, "gpu-memory-hook": false, "kubectl-gpu": false, "gpu-sim": true} {
		held := slices.ContainsFunc(dependencies(t, "cmd/"+program), func(path string) bool {
			return strings.HasPrefix(path, module+"pkg/nvmlsim")
		})
		if held != want {
			t.Errorf("%s depends on pkg/nvmlsim: %v, want %v", program, held, want)
		}
	}
}

func TestTheAgentDoesNotHoldTheSupervisor(t *testing.T) {
	for program, want := range map[string]bool{"gpu-kubelet-plugin": false, "gpu-mps-supervisor": true} {
		if held := slices.Contains(dependencies(t, "cmd/"+program), module+"pkg/mps/supervisor"); held != want {
			t.Errorf("%s depends on pkg/mps/supervisor: %v, want %v", program, held, want)
		}
	}
}

// dependencies returns the packages that a program is linked from.
func dependencies(t *testing.T, folder string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+folder).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", folder, err)
	}
	return strings.Fields(string(out))
}
