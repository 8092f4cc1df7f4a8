// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
)

// usageItem is the sum of the allocations of a namespace, in JSON and YAML.
type usageItem struct {
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
	use
}

func (o *options) newUsage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "The GPUs, memory and compute that are promised to each namespace, and for how long",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			used, err := o.readUses(cmd.Context(), v, nil)
			if err != nil {
				return err
			}
			items := usageItems(v.Nodes(), time.Now())
			for i, u := range items {
				items[i].use = used.ofNamespace(u.Namespace)
			}
			t := table{heading: []string{"NAMESPACE", "CLAIMS", "GPUS", "MEMORY", "COMPUTE", "SLOTS", "GPU HOURS"}}
			for _, u := range items {
				t.rows = append(t.rows, []string{u.Namespace, fmt.Sprint(u.Claims), fmt.Sprintf("%.1f", u.GPUs), gibibytes(u.Memory), fmt.Sprintf("%d%%", u.Compute), fmt.Sprint(u.Slots), fmt.Sprintf("%.1f", u.Hours)})
			}
			o.addUse(&t, func(i int) (use, float64) { return items[i].use, 0 })
			return o.print(items, t)
		},
	}
	o.usedFlag(cmd.Flags())
	return cmd
}

// usageItems returns the usage of each namespace with claims, in order of their names.
func usageItems(nodes []fleet.Node, now time.Time) []usageItem {
	all := map[string]*usageItem{}
	claims := map[types.UID]bool{}
	for _, node := range nodes {
		for _, g := range node.GPUs {
			for d, h := range g.Holders() {
				u := all[h.Claim.Namespace]
				if u == nil {
					u = &usageItem{Namespace: h.Claim.Namespace}
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
	items := []usageItem{}
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		items = append(items, *all[namespace])
	}
	return items
}
