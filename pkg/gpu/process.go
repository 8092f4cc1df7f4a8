// SPDX-License-Identifier: Apache-2.0

package gpu

import "fmt"

// Process is a process with a context on a GPU, as the GPU's driver lists it.
type Process struct {
	// PID in the PID namespace of this process.
	PID int
	// MemoryBytes it holds on the GPU; 0 if the driver does not report it.
	MemoryBytes uint64
	// GPUInstance is the ID of the MIG GPU instance that the process runs on. It is
	// nil on a GPU that is not in MIG mode.
	GPUInstance *int
	// Graphics is true for a process that draws and does not compute.
	Graphics bool
}

// Task is a process as the kernel describes it.
type Task struct {
	// Command is the first 15 bytes of the program's name. The process chooses
	// it.
	Command string
	// Started is the start time in clock ticks since the boot. It distinguishes a
	// process from a later one with the same PID.
	Started uint64
	// PodUID and ContainerID identify the container of the process; empty for a
	// process of the host.
	PodUID, ContainerID string
	// OnHost is true if the process is in the PID namespace of the agent. An agent
	// with hostPID is in the host's namespace; containers have their own.
	OnHost bool
}

// mpsCommand is the kernel's name, cut to 15 bytes, of both
// nvidia-cuda-mps-control and nvidia-cuda-mps-server.
const mpsCommand = "nvidia-cuda-mps"

// IsMPS reports whether the process is an MPS daemon or server. A container
// cannot pretend to be one, unless it shares the PID namespace of the host.
func (t Task) IsMPS() bool { return t.OnHost && t.Command == mpsCommand }

// Describe returns the process for texts that users read. They do not name other tenants: the log
// names the pod. A process that is in no pod belongs to the host. A task that could not be read is
// empty.
func (t Task) Describe(pid int) string {
	switch {
	case t.PodUID != "":
		return fmt.Sprintf("process %d of another pod", pid)
	case t.Command == "":
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d of the host (command %q)", pid, t.Command)
}
