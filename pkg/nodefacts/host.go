// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// cpuManager returns the policy in the state of the kubelet's CPU manager.
func cpuManager(s string) (string, error) {
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal([]byte(s), &state); err != nil {
		return "", fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	return state.PolicyName, nil
}

// enableCDI returns the value of enable_cdi in the text of containerd's configuration.
// The name is in one section only, so the sections need not be read.
func enableCDI(s string) (string, error) {
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "enable_cdi" {
			value, _, _ = strings.Cut(value, "#")
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}
