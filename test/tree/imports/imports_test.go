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

// The programs that the tests run are the ones that users run. gpu-sim has the simulator,
// which shows that the test finds it.
func TestOnlyTheSimulatorsOwnProgramHoldsIt(t *testing.T) {
	for program, want := range map[string]bool{
		"cmd/gpu-kubelet-plugin": false, "cmd/gpu-mps-supervisor": false, "cmd/gpu-memory-hook": false, "cmd/gpu-memory-limit": false, "cmd/gpu-room": false, "cmd/kubectl-gpu": false, "simulator/cmd/gpu-sim": true,
	} {
		held := slices.ContainsFunc(dependencies(t, program), func(path string) bool {
			return strings.HasPrefix(path, module+"simulator/")
		})
		if held != want {
			t.Errorf("%s depends on the simulator: %v, want %v", program, held, want)
		}
	}
}

// People use the simulator without our driver and without Kubernetes.
func TestTheSimulatorHoldsNothingOfTheDriver(t *testing.T) {
	for _, program := range []string{"gpu-sim", "libnvidia-ml", "probe"} {
		for _, path := range dependencies(t, "simulator/cmd/"+program) {
			switch {
			case strings.HasPrefix(path, module) && !strings.HasPrefix(path, module+"simulator/"):
				t.Errorf("%s depends on %s", program, path)
			case strings.HasPrefix(path, "k8s.io/") && path != "k8s.io/utils/cpuset":
				t.Errorf("%s depends on Kubernetes' %s", program, path)
			}
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
