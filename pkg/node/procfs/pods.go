// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"os"
)

// SeesPods reports whether this process sees the processes of pods: it is in the PID
// namespace of the host, and not in that of its pod. Source: proc/1/cgroup.
func (r Root) SeesPods() (bool, error) {
	if os.Getpid() == 1 {
		return false, nil
	}
	groups, err := r.file(1, "cgroup")
	if err != nil {
		return false, fmt.Errorf("process 1: %w", err)
	}
	pod, _ := containerOf(groups)
	return pod == "", nil
}
