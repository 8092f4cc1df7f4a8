// SPDX-License-Identifier: Apache-2.0

package state

import (
	"reflect"
	"slices"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Hardware is what NVML and the kernel reported.
type Hardware struct {
	// DriverVersion and CUDADriverVersion are of the last scan that found a driver.
	DriverVersion     string
	CUDADriverVersion gpu.Version
	// GPUs has each GPU that has answered since the agent started, in order of the PCI
	// address. A device that disappeared while a claim holds it would confuse the scheduler.
	GPUs []Sighting
	// Unreadable are the GPUs that did not answer in the last scan.
	Unreadable []gpu.Unreadable
	// UnreadableCount is their number in the last scan that succeeded.
	UnreadableCount int
	// Incomplete says which facts of the last scan that succeeded are missing; nil if none.
	Incomplete error
	// Scanned is set once a scan has ended, and Succeeded once one has succeeded.
	Scanned, Succeeded bool
	// Err is why the last scan failed as a whole; nil if it succeeded.
	Err error
}

// Equal reports whether both are the same.
func (h Hardware) Equal(other Hardware) bool {
	return sameText(h.Err, other.Err) && sameText(h.Incomplete, other.Incomplete) &&
		slices.EqualFunc(h.GPUs, other.GPUs, func(a, b Sighting) bool { return sameText(a.Err, b.Err) }) &&
		slices.EqualFunc(h.Unreadable, other.Unreadable, func(a, b gpu.Unreadable) bool { return sameText(a.Err, b.Err) }) &&
		reflect.DeepEqual(h.withoutErrors(), other.withoutErrors())
}

// withoutErrors returns a copy without errors.
func (h Hardware) withoutErrors() Hardware {
	h.Err, h.Incomplete = nil, nil
	h.GPUs, h.Unreadable = slices.Clone(h.GPUs), slices.Clone(h.Unreadable)
	for i := range h.GPUs {
		h.GPUs[i].Err = nil
	}
	for i := range h.Unreadable {
		h.Unreadable[i].Err = nil
	}
	return h
}

// HardwareOf returns the hardware after one scan of a node that has no claims.
func HardwareOf(node gpu.Node) Hardware {
	h := Hardware{
		DriverVersion: node.DriverVersion, CUDADriverVersion: node.CUDADriverVersion, Unreadable: node.Unreadable,
		UnreadableCount: len(node.Unreadable), Incomplete: node.Incomplete, Scanned: true, Succeeded: true,
	}
	for _, g := range node.GPUs {
		h.GPUs = append(h.GPUs, Sighting{GPU: g})
	}
	return h
}

// Sighting is the last successful read of a GPU.
type Sighting struct {
	// GPU from the last read, with the changes of claims.
	GPU gpu.GPU
	// Changes that claims had made when the GPU was read.
	Changes Changes
	// Err is why the GPU does not answer now; nil if it does.
	Err error
}

// unclaimed returns the GPU without the changes of claims: their partitions, the partitions
// that stay for later claims, and a MIG mode and compute mode that only they need. A mode
// is theirs only if a record shows it.
func (s Sighting) unclaimed() gpu.GPU {
	g := s.GPU
	g.MIG.Partitions = nil
	for _, p := range s.GPU.MIG.Partitions {
		_, held := s.Changes.Held[kind.Partition(g.Address, p.Profile, p.Placement.Start)]
		if !held && !s.Changes.Kept[p.UUID] {
			g.MIG.Partitions = append(g.MIG.Partitions, p)
		}
	}
	if s.Changes.MIGModes[g.Address] && len(g.MIG.Partitions) == 0 {
		g.MIG.Enabled, g.MIG.PendingEnabled = false, false
	}
	if s.Changes.Exclusive[g.Address] && g.ComputeMode == gpu.ComputeModeExclusiveProcess {
		g.ComputeMode = gpu.ComputeModeDefault
	}
	return g
}

// Conditions is what the agent knows of the GPUs that a scan does not report.
type Conditions struct {
	// Faults of GPUs, in order of the UUID.
	Faults []Fault
	// External are the external allocations, and ExternalKnown is set once they were read,
	// with whatever result.
	External      []gpu.ExternalAllocation
	ExternalKnown bool
	// Cordoned are the devices of the GPUs that an administrator has taken out of use.
	Cordoned []string
	// MPSNamespaces reports whether MPS daemons of the node can have namespaces.
	MPSNamespaces bool
	// Repairs says which repairs that an administrator has declared have no effect; nil if
	// there are none.
	Repairs error
}

// Equal reports whether both are the same.
func (c Conditions) Equal(other Conditions) bool {
	same := sameText(c.Repairs, other.Repairs)
	c.Repairs, other.Repairs = nil, nil
	return same && reflect.DeepEqual(c, other)
}

// Fault is a fault of a GPU that lasts until there is evidence of its repair.
type Fault struct {
	UUID string
	// Address is where the GPU was last seen, as text; empty if it never was.
	Address string
	// Cause is the value of the taint, and Since when it was first reported.
	Cause string
	Since time.Time
	// Message contains the causes in a sentence. Decisive is the cause whose
	// remedy counts.
	Message, Decisive string
}
