// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Usage is the sum of the allocations of a namespace, in JSON and YAML.
type Usage struct {
	Namespace string `json:"namespace"`
	Claims    int    `json:"claims"`
	// GPUs is the sum of the parts of each GPU's memory.
	GPUs   float64           `json:"gpus"`
	Memory resource.Quantity `json:"memory"`
	// Compute is in percent of a GPU.
	Compute int64 `json:"computePercent"`
	// Slots of time slices promise no memory.
	Slots int64 `json:"slots"`
	// Hours is the sum of GPUs since each claim was allocated, in hours.
	Hours float64 `json:"gpuHours"`
	Use
}

// Usages returns the usage of each namespace with claims, in order of their names.
func Usages(nodes []fleet.Node, now time.Time, used Uses) []Usage {
	all := map[string]*Usage{}
	reporting := slices.Sorted(maps.Keys(used))
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
				if total := g.Memory.Total.AsApproximateFloat64(); total > 0 {
					part := memory.AsApproximateFloat64() / total
					u.GPUs += part
					if since := h.Claim.Status.Allocation.AllocationTimestamp; since != nil {
						u.Hours += part * now.Sub(since.Time).Hours()
					}
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

// Cells returns the texts of the row, in the order of its fields.
func (u Usage) Cells() []string {
	return []string{
		u.Namespace, fmt.Sprint(u.Claims), fmt.Sprintf("%.1f", u.GPUs), Gibibytes(u.Memory), fmt.Sprintf("%d%%", u.Compute), fmt.Sprint(u.Slots),
		fmt.Sprintf("%.1f", u.Hours),
	}
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

// sum returns the sum of the matching rows of the nodes.
func (u Uses) sum(nodes []string, match func(agentv1.Labels) bool) Use {
	var sum Use
	for _, node := range nodes {
		for _, row := range u[node].Rows {
			if match(row.Labels) {
				sum.add(row)
			}
		}
	}
	return sum
}

func (s *Use) add(row agentv1.Row) {
	if row.MemoryUsedBytes != nil {
		if s.Memory == nil {
			s.Memory = resource.NewQuantity(0, resource.BinarySI)
		}
		s.Memory.Add(*resource.NewQuantity(int64(*row.MemoryUsedBytes), resource.BinarySI)) //nolint:gosec // less than 2^63 bytes
	}
	if row.SMUsed != nil {
		percent := 100 * *row.SMUsed
		if s.SM != nil {
			percent += *s.SM
		}
		s.SM = &percent
	}
}

// isOn reports whether a row is about the GPU or a part of it.
func isOn(gpu string) func(agentv1.Labels) bool {
	return func(l agentv1.Labels) bool {
		name := fleet.NameOf(l.Device)
		return name.OnGPU() && kind.Whole(name.Address).String() == gpu
	}
}
