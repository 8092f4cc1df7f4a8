// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// MPSMaxClients is the number of MPS clients on one GPU at a time, on Volta and
// newer. CUDA's Multi-Process Service admits no more.
const MPSMaxClients = 48

// MPSClients returns the number of clients that MPS admits at a time to a MIG
// device. The device has slices of the ofGPU compute slices of the GPU. It is
// proportional to the slices. Source: NVIDIA Multi-Instance GPU User Guide, CUDA
// MPS on MIG.
func MPSClients(slices, ofGPU int) int {
	if ofGPU == 0 {
		return MPSMaxClients
	}
	return max(1, MPSMaxClients*slices/ofGPU)
}

// MPSClientsOfShare returns how many of a device's MPS clients a share of its
// memory may have: the same fraction as of the memory, rounded down, at least one.
// If every share has at least 1/clients of the memory, the results for all shares
// of a device add up to no more than clients.
func MPSClientsOfShare(clients int, share, all uint64) int {
	if all == 0 {
		return 1
	}
	return max(1, int(uint64(clients)*share/all))
}

// ComputeSlices returns the number of compute slices of the GPU, all of which its
// largest profile has.
func (m MIG) ComputeSlices() int {
	most := 0
	for _, p := range m.Profiles {
		most = max(most, p.ComputeSlices)
	}
	return most
}

// firstWithMPSLimits is the compute capability of the first generation with MPS
// limits (Volta). From then on MPS limits the threads and the memory of a client.
const firstWithMPSLimits = 7

// MPSLimits reports whether MPS can limit its clients on this GPU.
func (g GPU) MPSLimits() bool { return g.ComputeCapability.Major >= firstWithMPSLimits }

// MPSDaemon is the desired state of an MPS control daemon. A daemon serves one
// GPU or MIG device, or several whole GPUs that one claim uses together.
type MPSDaemon struct {
	// Name of the daemon and its folders: the published name of its first
	// device, or of the GPU whose seats it serves.
	Name string
	// Devices are the UUIDs of the devices that its clients see, in the order of
	// their CUDA ordinals.
	Devices []string
	// ThreadPercentage is the largest percentage of the multiprocessors for a client,
	// 1 to 100. 0 means no limit.
	ThreadPercentage int
	// MemoryLimits are the most bytes that a client can allocate on each of
	// Devices. Nil, or 0 for a device, means no limit.
	MemoryLimits []uint64
	// Namespaces of a daemon with MPS protocol 3, in order of their names. Clients of a
	// namespace have its limits, and the daemon itself has none. Nil means protocol 2.
	Namespaces []MPSNamespace
}

// HasNamespaces reports whether the daemon has MPS protocol 3.
func (d MPSDaemon) HasNamespaces() bool { return len(d.Namespaces) > 0 }

// MPSNamespace is a group of clients of a daemon, with the limits of each client. A
// client cannot raise them.
type MPSNamespace struct {
	// Name has lowercase letters, digits and underscores, up to 64, and is not
	// "default".
	Name string
	// ThreadPercentage is the percentage of the multiprocessors that a client can use,
	// 1 to 100.
	ThreadPercentage int
	// MemoryLimit is the most bytes that a client can allocate on each device of the
	// daemon. 0 means no limit.
	MemoryLimit uint64
}

// MPSDirs are the folders of a daemon, on the host, that its clients need.
type MPSDirs struct {
	// Pipe is the folder with the daemon's socket. If the daemon has namespaces, it has
	// a folder with a socket for each of them, under its name.
	Pipe string
	// Shm is the folder that clients must have as /dev/shm.
	Shm string
}

// MPSState is the state of a daemon.
type MPSState string

// The states of a daemon.
const (
	MPSReady    MPSState = "Ready"
	MPSStarting MPSState = "Starting"
	// MPSFailed: the daemon has died or hangs, and the supervisor restarts it.
	MPSFailed MPSState = "Failed"
)

// MPSStatus is the observed state of a daemon.
type MPSStatus struct {
	Daemon MPSDaemon
	State  MPSState
	// PID of its process on the host; 0 if it has none.
	PID int
	// Problem describes why the daemon is not ready, or a fault of a ready daemon.
	Problem string
	// Restarts counts the restarts since the daemon was first started.
	Restarts int
	// Interrupted is when its clients last lost their server. The server or the daemon ended
	// then. It is zero if that has not happened.
	Interrupted time.Time
	// Waiting are the processes that wait until the programs of another user have ended,
	// ordered by PID.
	Waiting []MPSWaiting
	// Servers are the servers that it has started for clients.
	Servers []MPSServer
}

// MPSWaiting is a process that waits for a server of its user.
type MPSWaiting struct{ PID, UID int }

// MPSServer is a server process of a daemon.
type MPSServer struct {
	PID     int
	State   string // as the daemon calls it: "ACTIVE", "FAULT", ...
	Clients int
}
