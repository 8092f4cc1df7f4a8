package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
)

var timeSlice = regexp.MustCompile(`(?m)Time-?slice\s+(\w+)`)

// TimeSlice is that of a GPU, by UUID, as nvidia-smi lists it: "Default",
// "Short", "Medium" or "Long".
func (a *Agent) TimeSlice(ctx context.Context, uuid string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(a.SimDir(), "root/usr/bin/nvidia-smi"), "compute-policy", "-i", uuid, "--list").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nvidia-smi compute-policy: %w: %s", err, out)
	}
	match := timeSlice.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("nvidia-smi compute-policy says nothing of a time slice: %s", out)
	}
	return string(match[1]), nil
}
