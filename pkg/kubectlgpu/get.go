// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
)

// gpuItem is a GPU in JSON and YAML.
type gpuItem struct {
	Node            string            `json:"node"`
	Name            string            `json:"name"`
	Model           string            `json:"model,omitempty"`
	UUID            string            `json:"uuid,omitempty"`
	Mode            fleet.Mode        `json:"mode"`
	Memory          resource.Quantity `json:"memory"`
	MemoryPromised  resource.Quantity `json:"memoryPromised"`
	Compute         int64             `json:"computePercent"`
	ComputePromised int64             `json:"computePercentPromised"`
	Claims          int               `json:"claims"`
	use
	// Taints keep pods away, as key=value:effect.
	Taints []string `json:"taints,omitempty"`
}

func (o *options) newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get [NODE...]",
		Short: "The GPUs of the cluster: promised and used memory and compute, mode and health",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			v, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			used, err := o.readUses(cmd.Context(), v, nodes)
			if err != nil {
				return err
			}
			items := gpuItems(v.nodesNamed(nodes))
			for i, g := range items {
				items[i].use = used.of(g.Node, isOn(g.Name))
			}
			return o.printGPUs(items)
		},
	}
	o.usedFlag(cmd.Flags())
	return cmd
}

func gpuItems(nodes []fleet.Node) []gpuItem {
	items := []gpuItem{}
	for _, node := range nodes {
		for _, g := range node.GPUs {
			items = append(items, gpuItem{
				Node: node.Name, Name: g.Name, Model: g.Model, UUID: g.UUID, Mode: g.Mode,
				Memory: g.Memory.Total, MemoryPromised: g.Memory.Promised,
				Compute: g.Compute.Total, ComputePromised: g.Compute.Promised,
				Claims: g.Claims(), Taints: taints(g),
			})
		}
	}
	return items
}

func (o *options) printGPUs(items []gpuItem) error {
	t := table{heading: []string{"NODE", "GPU", "MODEL", "MODE", "CLAIMS", "MEMORY", "COMPUTE", "HEALTH"}, wide: []string{"UUID"}, bad: map[int]bool{}}
	for i, g := range items {
		health := "ok"
		if t.bad[i] = len(g.Taints) > 0; t.bad[i] {
			health = strings.Join(g.Taints, ",")
		}
		t.rows = append(t.rows, []string{
			g.Node, g.Name, orDash(g.Model), string(g.Mode), fmt.Sprint(g.Claims),
			fmt.Sprintf("%s %s/%s", bar(g.MemoryPromised.AsApproximateFloat64(), g.Memory.AsApproximateFloat64()), gibibytes(g.MemoryPromised), gibibytes(g.Memory)),
			fmt.Sprintf("%s %d%%", bar(float64(g.ComputePromised), float64(g.Compute)), g.ComputePromised), health, orDash(g.UUID),
		})
	}
	o.addUse(&t, func(i int) (use, float64) { return items[i].use, items[i].Memory.AsApproximateFloat64() })
	return o.print(items, t)
}

// taints returns the taints of a GPU's devices that keep pods away, each once.
func taints(g fleet.GPU) []string {
	var all []string
	for _, d := range g.Devices {
		if d.Published == nil {
			continue
		}
		for _, taint := range d.Published.Taints {
			if text := fleet.TaintText(taint); taint.Effect != resourceapi.DeviceTaintEffectNone && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

func orDash(s string) string { return cmp.Or(s, "-") }

// gibibytes prints an amount of memory in Gi, with one decimal if it needs one.
func gibibytes(q resource.Quantity) string {
	const unit = 1 << 30
	text := fmt.Sprintf("%.1f", float64(q.Value())/unit)
	return strings.TrimSuffix(text, ".0") + "Gi"
}
