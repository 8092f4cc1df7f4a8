// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// memoryUsed returns used memory as text, with a bar if the total is known.
func memoryUsed(use rows.Use, total resource.Quantity) markup.Part {
	switch {
	case use.Memory == nil:
		return markup.Text("-")
	case total.IsZero():
		return markup.Text(rows.Gibibytes(*use.Memory))
	}
	return memoryBar(*use.Memory, total)
}

// smUsed returns the use of multiprocessors as text. It has a bar if bars is set.
func smUsed(use rows.Use, bars bool) markup.Part {
	switch {
	case use.SM == nil:
		return markup.Text("-")
	case bars:
		return amountBar(*use.SM, 100, fmt.Sprintf("%.0f%%", *use.SM))
	}
	return markup.Text(fmt.Sprintf("%.0f%%", *use.SM))
}

// useColumns returns the columns about the use, if agents report it. total returns all memory
// of a row; nil for columns without bars.
func useColumns[T any](r *reading, use func(T) rows.Use, total func(T) resource.Quantity) []column[T] {
	if r.uses() == nil {
		return nil
	}
	memory := func(row T) float64 {
		if u := use(row); u.Memory != nil {
			return u.Memory.AsApproximateFloat64()
		}
		return -1
	}
	sm := func(row T) float64 {
		if u := use(row); u.SM != nil {
			return *u.SM
		}
		return -1
	}
	return []column[T]{
		{"Memory used", by(memory), func(row T) markup.Part {
			var all resource.Quantity
			if total != nil {
				all = total(row)
			}
			return memoryUsed(use(row), all)
		}},
		{"SM used", by(sm), func(row T) markup.Part { return smUsed(use(row), total != nil) }},
	}
}

// nodeUse returns the sum of the use of a node's GPUs, and the average of its multiprocessors.
func (r *reading) nodeUse(node fleet.Node) rows.Use {
	var sum rows.Use
	if r.uses() == nil {
		return sum
	}
	gpus := rows.GPUs([]fleet.Node{node}, r.uses())
	for _, g := range gpus {
		if g.Use.Memory != nil {
			if sum.Memory == nil {
				sum.Memory = resource.NewQuantity(0, resource.BinarySI)
			}
			sum.Memory.Add(*g.Use.Memory)
		}
		if g.SM != nil {
			percent := *g.SM / float64(len(gpus))
			if sum.SM != nil {
				percent += *sum.SM
			}
			sum.SM = &percent
		}
	}
	return sum
}
