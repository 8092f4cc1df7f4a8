// SPDX-License-Identifier: Apache-2.0

package gpu

// NoMemoryLimit is the limit of a cgroup without one.
const NoMemoryLimit = ^uint64(0)

// MemoryLimit is the limit that the driver enforces on a cgroup's memory of a GPU.
// It applies to all processes of the cgroup together.
type MemoryLimit struct {
	// Bytes is [NoMemoryLimit] if the cgroup has none.
	Bytes uint64
	// UsedBytes is 0 if the cgroup has no limit: the driver counts only then.
	UsedBytes uint64
}
