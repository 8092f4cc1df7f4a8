// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// stubName is the name of the first process of a container of runc, until it executes the container's
// program. It waits until the runtime opens a pipe, exec.fifo.
const stubName = "runc:[2:INIT]"

// EndStub kills a process of a pod if it has the name of runc's first process. ended reports whether it
// did. The program of a container can take that name too.
// It works in the PID namespace of this process only.
func (r Root) EndStub(pid int, pod string) (ended bool, err error) {
	if r != "/" {
		return false, nil
	}
	// The descriptor stays with the process. If the PID passes to another one before Task, the signal reaches none.
	process, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(process) //nolint:errcheck // nothing was written
		var task gpu.Task
		if task, err = r.Task(pid); err == nil && task.Command == stubName && task.PodUID == pod {
			err = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0)
			ended = err == nil
		}
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, gpu.ErrNotFound) {
		return false, fmt.Errorf("end process %d: %w", pid, err)
	}
	return ended, nil
}
