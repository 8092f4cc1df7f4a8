// SPDX-License-Identifier: Apache-2.0

// Package report is the form in which an agent serves the use of claims, for programs of
// users.
//
// Out of scope: how it is measured, which package usage has.
package report

// Path is the path of the report on the agent's HTTP port.
const Path = "/v1/claims"

// MaxRows is the limit of the rows of a report. Eight GPUs with 48 clients of MPS each, the
// most that the hardware admits, have 768.
const MaxRows = 2000

// Report is the use of a node by its claims.
type Report struct {
	// Rows in the order of their labels: first those of the claims, then those of their
	// containers, at most [MaxRows].
	Rows []Row `json:"rows"`
	// Omitted is the number of rows beyond that.
	Omitted int `json:"omitted,omitempty"`
}

// Row is about a device of a claim or, if a container is named, about the use of that
// device by the container. So promises are in the rows of claims only, and a sum over the
// rows of a claim counts nothing twice. A field that is not known is nil.
type Row struct {
	Labels
	// MemoryUsedBytes is the memory that processes have. It is in a row of a claim only
	// if no container uses the device.
	MemoryUsedBytes *uint64 `json:"memoryUsedBytes,omitempty"`
	// MemoryLimitBytes is the memory above which the driver or the hardware refuses
	// allocations: in rows of containers for the shares that the driver limits, and in
	// rows of claims for whole GPUs and MIG devices. Other rows have none.
	MemoryLimitBytes *uint64 `json:"memoryLimitBytes,omitempty"`
	// MemoryPromisedBytes and ComputePromised, from 0 to 1 of the GPU, are allocated to
	// the claim. Time slices that name no memory promise none.
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
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// Pod and Container are empty in rows of claims. They are the UID of the pod and the
	// ID of the container if the names are not known.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Device    string `json:"device"`
	// UUID of the GPU or MIG device; empty while a MIG device is being made.
	UUID string `json:"uuid,omitempty"`
	// Enforcement says how strictly the memory is limited: [EnforcementHardware], or one
	// of the levels of shares; empty if that is in no record.
	Enforcement string `json:"enforcement,omitempty"`
}

// EnforcementHardware is the level of GPUs and MIG devices that a claim has to itself.
const EnforcementHardware = "hardware"

// OfContainer reports whether the row is about the use by a container.
func (l Labels) OfContainer() bool { return l.Pod != "" || l.Container != "" }
