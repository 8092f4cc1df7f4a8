// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/kernellog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

// faults finds the programs that made faults. It is a [report.Faults].
type faults struct {
	kernellog.Log
	tasks *procfs.Seen
	// noPIDs is set if the PIDs in the log are of another namespace.
	noPIDs error
}

// newFaults returns the faults in the log of the machine with the GPUs. The log of a simulated
// machine has the PIDs of the node.
func newFaults(machine string, tasks *procfs.Seen) faults {
	f := faults{Log: kernellog.Log(filepath.Join(machine, "dev/kmsg")), tasks: tasks}
	if machine == "/" && !tasks.IsMachine() {
		f.noPIDs = fmt.Errorf("%w: the agent is not in the machine's PID namespace, whose PIDs the kernel logs", gpu.ErrNotSupported)
	}
	return f
}

// PodOf implements [report.Faults].
func (f faults) PodOf(pid int) types.UID {
	if pid == 0 || f.noPIDs != nil {
		return ""
	}
	return types.UID(f.tasks.PodOf(pid))
}

// Check returns why the programs that made faults are not known; nil if they are.
func (f faults) Check() error {
	if err := f.Log.Check(); err != nil {
		return err
	}
	return f.noPIDs
}
