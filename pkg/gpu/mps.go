// SPDX-License-Identifier: Apache-2.0

package gpu

// MPSMaxClients is how many clients CUDA's Multi-Process Service admits to one
// GPU at a time, on Volta and newer.
const MPSMaxClients = 48

// MPSClients is how many clients MPS admits to a MIG device of so many of the
// GPU's compute slices at a time: of those to a GPU, in proportion.
// Source: NVIDIA Multi-Instance GPU User Guide, CUDA MPS on MIG.
func MPSClients(slices, ofGPU int) int {
	if ofGPU == 0 {
		return MPSMaxClients
	}
	return max(1, MPSMaxClients*slices/ofGPU)
}

// MPSClientsOfShare returns how many of a device's MPS clients belong to a share of
// its memory: as large a part of them, rounded down, and one at least. Shares of all
// of the memory have no more than all clients together if each has the memory of a
// client or more.
func MPSClientsOfShare(clients int, share, all uint64) int {
	if all == 0 {
		return 1
	}
	return max(1, int(uint64(clients)*share/all))
}

// ComputeSlices is how many a GPU has: those of its largest profile.
func (m MIG) ComputeSlices() int {
	most := 0
	for _, p := range m.Profiles {
		most = max(most, p.ComputeSlices)
	}
	return most
}

// firstWithMPSLimits is the compute capability of the first generation (Volta)
// on which MPS limits the threads and the memory of a client.
const firstWithMPSLimits = 7

// MPSLimits reports whether MPS can hold clients on this GPU to limits.
func (g GPU) MPSLimits() bool { return g.ComputeCapability.Major >= firstWithMPSLimits }

// MPSDaemon is what an MPS control daemon is to be: one for a GPU or MIG
// device, or for several whole GPUs that one claim uses together.
type MPSDaemon struct {
	// Name of the daemon and its folders: the published name of its first
	// device.
	Name string
	// Devices are the UUIDs of what its clients see, in the order of their
	// CUDA ordinals.
	Devices []string
	// ThreadPercentage of the multiprocessors that a client can have at most,
	// 1 to 100; 0 for no ceiling.
	ThreadPercentage int
	// MemoryLimits are the bytes that a client can have of each of Devices at
	// most; nil, or 0 in a place, for no ceiling.
	MemoryLimits []uint64
}

// MPSDirs are the folders of a daemon, on the host, that its clients need.
type MPSDirs struct {
	// Pipe is where clients find the daemon.
	Pipe string
	// Shm is what clients must have as /dev/shm.
	Shm string
}

// MPSState says how a daemon fares.
type MPSState string

// The states of a daemon.
const (
	MPSReady    MPSState = "Ready"
	MPSStarting MPSState = "Starting"
	// MPSFailed: it has died or hangs; it is started anew.
	MPSFailed MPSState = "Failed"
)

// MPSStatus is one look at a daemon.
type MPSStatus struct {
	Daemon MPSDaemon
	State  MPSState
	// PID of its process on the host; 0 if it has none.
	PID int
	// Problem says in words why it is not ready, or what is wrong with it all the
	// same.
	Problem string
	// Restarts since it was asked for.
	Restarts int
	// Servers that it has started for clients.
	Servers []MPSServer
}

// MPSServer is a server process of a daemon.
type MPSServer struct {
	PID     int
	State   string // as the daemon calls it: "ACTIVE", "FAULT", ...
	Clients int
}
