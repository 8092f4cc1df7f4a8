// SPDX-License-Identifier: Apache-2.0

package v1

// MaxRows is the limit of the rows of a [Report]. Eight GPUs with 48 clients of MPS each, the
// most that the hardware admits, have 768.
const MaxRows = 2000

// Report is the use of a node's GPUs by claims.
type Report struct {
	// Rows in the order of their labels: first those of the claims, then those of their
	// containers, at most [MaxRows].
	Rows []Row `json:"rows"`
	// Omitted is the number of rows beyond that.
	Omitted int `json:"omitted,omitempty"`
	// Foreign has the processes that no claim explains. It is nil if they are not known: before
	// the first check, and by agents of earlier releases.
	Foreign *Foreign `json:"foreign,omitempty"`
}

// Row is about a device of a claim. If it names a container, it is about that container's
// use of the device. So promises are in the rows of claims only, and a sum over the rows
// of a claim counts nothing twice. A field that is not known is nil.
type Row struct {
	Labels
	// MemoryUsedBytes is the memory that processes use, in bytes. It is in a row of a claim only
	// if no container uses the device.
	MemoryUsedBytes *uint64 `json:"memoryUsedBytes,omitempty"`
	// MemoryLimitBytes is the memory, in bytes, above which the driver or the hardware refuses
	// allocations: in rows of containers for the shares that the driver limits, and in
	// rows of claims for whole GPUs and MIG devices. Other rows have none.
	MemoryLimitBytes *uint64 `json:"memoryLimitBytes,omitempty"`
	// MemoryPromisedBytes, in bytes, and ComputePromised, from 0 to 1 of the GPU, are
	// allocated to the claim. Time slices that name no memory promise none.
	MemoryPromisedBytes *uint64  `json:"memoryPromisedBytes,omitempty"`
	ComputePromised     *float64 `json:"computePromised,omitempty"`
	// SMUsed is the part of the time, 0 to 1, for which kernels run on the GPU's
	// multiprocessors.
	SMUsed *float64 `json:"smUsed,omitempty"`
	// Healthy is false if the GPU has a fault.
	Healthy *bool `json:"healthy,omitempty"`
}

// Labels name the object of a row.
type Labels struct {
	// Namespace of the ResourceClaim and of the pods that use it.
	Namespace string `json:"namespace"`
	// Claim is the name of the ResourceClaim.
	Claim string `json:"claim"`
	// Pod and Container are empty in rows of claims. They are the UID of the pod and the
	// ID of the container if the names are not known.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	// Device is the name of the device in its ResourceSlice, such as "gpu-1b-00".
	Device string `json:"device"`
	// UUID of the GPU or MIG device; empty while a MIG device is being made.
	UUID string `json:"uuid,omitempty"`
	// Enforcement says how strictly the memory is limited: [EnforcementHardware], or
	// the level of a share ("driver", "cooperative" or "none"); empty if the record of the
	// claim is lost.
	Enforcement string `json:"enforcement,omitempty"`
}

// EnforcementHardware is the level of GPUs and MIG devices that a claim has to itself.
const EnforcementHardware = "hardware"

// OfContainer reports whether the row is about the use by one container.
func (l Labels) OfContainer() bool { return l.Pod != "" || l.Container != "" }
