// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

var timeSlice = regexp.MustCompile(`(?m)Time-?slice\s+(\w+)`)

// TimeSlice returns the time slice of a GPU, by UUID, as nvidia-smi lists it: "Default",
// "Short", "Medium" or "Long".
func (a *Agent) TimeSlice(ctx context.Context, uuid string) (string, error) {
	cmd := exec.CommandContext(ctx, a.cluster.SimProgram("gpu-sim"), "nvidia-smi", "compute-policy", "-i", uuid, "--list")
	cmd.Env = append(os.Environ(), "GPU_SIM_STATE="+a.SimDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nvidia-smi compute-policy: %w: %s", err, out)
	}
	match := timeSlice.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("nvidia-smi compute-policy says nothing of a time slice: %s", out)
	}
	return string(match[1]), nil
}
