// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
)

// MaxRows is the limit of the rows of a report. Eight GPUs with 48 clients of MPS each, the
// most that the hardware admits, have 768.
const MaxRows = 2000

// Report is what the claims of a node use.
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

func (l Labels) ofContainer() bool { return l.Pod != "" || l.Container != "" }

func (l Labels) compare(other Labels) int {
	rank := func(l Labels) int {
		if l.ofContainer() {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(rank(l), rank(other)),
		cmp.Compare(l.Namespace, other.Namespace), cmp.Compare(l.Claim, other.Claim), cmp.Compare(l.Device, other.Device),
		cmp.Compare(l.Pod, other.Pod), cmp.Compare(l.Container, other.Container),
		cmp.Compare(l.UUID, other.UUID), cmp.Compare(l.Enforcement, other.Enforcement),
	)
}

// rows are the rows of a report. Whatever has the same labels is one row: the shares that a
// claim has of one device, and a container that is restarted while its processes end.
type rows map[Labels]*Row

func (r rows) at(l Labels) *Row {
	if r[l] == nil {
		r[l] = &Row{Labels: l}
	}
	return r[l]
}

func (r rows) report() Report {
	all := make([]Row, 0, len(r))
	for _, row := range r {
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b Row) int { return a.compare(b.Labels) })
	most := min(len(all), MaxRows)
	return Report{Rows: all[:most:most], Omitted: len(all) - most}
}

// add adds to a value that may not be known yet.
func add[T uint64 | float64](to **T, value T) {
	if *to == nil {
		*to = new(T)
	}
	**to += value
}
