// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Usage is the sum of the allocations of a namespace, in JSON and YAML.
type Usage struct {
	Namespace string `json:"namespace"`
	Claims    int    `json:"claims"`
	// GPUs is the sum of the parts of each GPU: of its time slices, or else of its memory.
	GPUs   float64           `json:"gpus"`
	Memory resource.Quantity `json:"memory"`
	// Compute is in percent of a GPU.
	Compute int64 `json:"computePercent"`
	// Slots of time slices promise no memory.
	Slots int64 `json:"slots"`
	// Hours is the sum of GPUs since each claim was allocated, in hours. It is nil if no allocation
	// of the namespace has a time.
	Hours *float64 `json:"gpuHours,omitempty"`
	Use
}

// Total returns the sum of the rows. An amount that is not known in one row is not known in the sum.
func Total(rows []Usage) Usage {
	sum := Usage{Namespace: "TOTAL", Hours: new(float64), Use: Use{Memory: &resource.Quantity{}, SM: new(float64)}}
	for _, u := range rows {
		sum.Claims, sum.GPUs, sum.Compute, sum.Slots = sum.Claims+u.Claims, sum.GPUs+u.GPUs, sum.Compute+u.Compute, sum.Slots+u.Slots
		sum.Memory.Add(u.Memory)
		sum.Hours, sum.SM = addKnown(sum.Hours, u.Hours), addKnown(sum.SM, u.SM)
		if u.Use.Memory == nil || sum.Use.Memory == nil {
			sum.Use.Memory = nil
			continue
		}
		sum.Use.Memory.Add(*u.Use.Memory)
	}
	return sum
}

// addKnown returns the sum of two amounts, or nil if one is not known.
func addKnown(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	sum := *a + *b
	return &sum
}

// partOf returns the part of a GPU that an allocation takes, from 0 to 1.
func partOf(g fleet.GPU, d fleet.Device, h fleet.Holder) float64 {
	if slots, all := d.Slots(h), d.AllSlots(); slots > 0 && all > 0 {
		return float64(slots) / float64(all)
	}
	if g.Memory.Total.IsZero() {
		if d.ID.Device == g.Name && !h.Shared() {
			return 1 // also while its node does not publish it
		}
		return 0
	}
	memory, _ := d.Promised(h)
	return memory.AsApproximateFloat64() / g.Memory.Total.AsApproximateFloat64()
}

// Usages returns the usage of each namespace with claims, in order of their names.
func Usages(nodes []fleet.Node, now time.Time, used Uses) []Usage {
	all := map[string]*Usage{}
	reporting := fleet.Each(nodes, func(n fleet.Node) string { return n.Name })
	claims := map[types.UID]bool{}
	for _, node := range nodes {
		for _, g := range node.GPUs {
			for d, h := range g.Holders() {
				u := all[h.Claim.Namespace]
				if u == nil {
					u = &Usage{Namespace: h.Claim.Namespace, Use: used.sum(reporting, func(l agentv1.Labels) bool { return l.Namespace == h.Claim.Namespace })}
					all[h.Claim.Namespace] = u
				}
				if !claims[h.Claim.UID] {
					claims[h.Claim.UID] = true
					u.Claims++
				}
				memory, compute := d.Promised(h)
				u.Memory.Add(memory)
				u.Compute += compute
				u.Slots += d.Slots(h)
				part := partOf(g, d, h)
				u.GPUs += part
				if since := h.Claim.Status.Allocation.AllocationTimestamp; since != nil {
					u.Hours = ptr.To(ptr.Deref(u.Hours, 0) + part*max(0, now.Sub(since.Time).Hours()))
				}
			}
		}
	}
	rows := []Usage{}
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, *all[namespace])
	}
	return rows
}

// Use is the memory and multiprocessors that programs use; a part that is not known is nil.
type Use struct {
	// Memory in bytes.
	Memory *resource.Quantity `json:"memoryUsed,omitempty"`
	// SM is the part of the time, in percent, for which kernels run on a GPU.
	SM *float64 `json:"smUsedPercent,omitempty"`
}

// Uses are the reports of agents by node; nil if the user has not requested them.
type Uses map[string]agentv1.Report

// sum returns the sum of the matching rows of the nodes. A part that is not known of one container
// is not known in the sum.
func (u Uses) sum(nodes []string, match func(agentv1.Labels) bool) (sum Use) {
	memory, sm := resource.NewQuantity(0, resource.BinarySI), 0.0
	hasMemory, hasSM := valued{}, valued{}
	for _, node := range nodes {
		for _, row := range u[node].Rows {
			if !match(row.Labels) {
				continue
			}
			isContainer := row.Container != ""
			if hasMemory.add(row.MemoryUsedBytes != nil, isContainer) {
				memory.Add(bytes(*row.MemoryUsedBytes))
			}
			if hasSM.add(row.SMUsed != nil, isContainer) {
				sm += 100 * *row.SMUsed
			}
		}
	}
	if hasMemory.all() {
		sum.Memory = memory
	}
	if hasSM.all() {
		sum.SM = &sm
	}
	return sum
}

// valued counts the rows that have a value, and the containers without one. The row of a claim has a
// value only if no container uses the device.
type valued struct{ values, missing int }

func (v *valued) add(hasValue, isContainer bool) bool {
	switch {
	case hasValue:
		v.values++
	case isContainer:
		v.missing++
	}
	return hasValue
}

func (v *valued) all() bool { return v.values > 0 && v.missing == 0 }

// isOn reports whether a row is about the GPU or a part of it.
func isOn(gpu string) func(agentv1.Labels) bool {
	return func(l agentv1.Labels) bool { return fleet.GPUOf(l.Device) == gpu }
}
