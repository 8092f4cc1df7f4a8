// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// fleetPage shows all nodes.
func fleetPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	var total, promised resource.Quantity
	gpus, inUse, modesOf, healths := 0, 0, map[fleet.Mode]int{}, map[string]int{}
	var found []nodeRow
	for i, node := range r.rows {
		gpus += node.Published()
		total.Add(node.Memory)
		promised.Add(node.MemoryPromised)
		texts := append([]string{node.Name}, node.Claims...)
		for _, g := range node.GPUs {
			healths[healthClass(g.Health.State)]++
			if g.Name != "" {
				modesOf[g.Mode]++
			}
			if g.Mode != fleet.ModeFree && classOf(g.Mode) != string(rows.ModeUnknown) {
				inUse++
			}
			texts = append(append(texts, g.Name, g.Model, g.UUID, string(g.Mode), g.Health.Text(r.at)), g.Taints...)
		}
		if matches(q, texts...) {
			found = append(found, nodeRow{node, r.nodes[i], r.nodeUse(r.nodes[i])})
		}
	}
	var sums facts
	sums.text("Nodes", fmt.Sprint(len(r.rows)))
	sums.text("GPUs", fmt.Sprint(gpus))
	if n := modesOf[rows.ModeNotYours]; n > 0 {
		sums.text("Free, or not yours", fmt.Sprintf("at most %d", n+modesOf[fleet.ModeFree]))
	} else {
		sums.text("Free", fmt.Sprint(modesOf[fleet.ModeFree]))
	}
	sums.text("With taints", fmt.Sprint(healths["tainted"]))
	if n := healths["unknown"]; n > 0 {
		sums.text("Health unknown", fmt.Sprint(n))
	}
	sums.add("In use", markup.Parts{markup.Text(fmt.Sprint(inUse)), legend(modesOf)})
	sums.add("Memory promised", memoryBar(promised, total))
	r.foreignTile(&sums)
	sums.add("Waiting pods", link(fmt.Sprint(len(r.waiting)), "pods"))

	use := useColumns(r, func(n nodeRow) rows.Use { return n.use }, func(n nodeRow) resource.Quantity { return n.Memory })
	nodes := list[nodeRow]{
		name: "Nodes", id: func(n nodeRow) string { return n.Name }, standard: "node", empty: noNodes(r),
		columns: slices.Concat([]column[nodeRow]{
			{"Node", by(func(n nodeRow) string { return n.Name }), func(n nodeRow) markup.Part { return link(n.Name, "nodes", n.Name) }},
			{"Health", by(nodeRow.sick), func(n nodeRow) markup.Part {
				if n.Incomplete {
					return markup.Text("⚠ " + incompleteText)
				}
				return r.health(n.GPUs...)
			}},
			{"GPUs", by(func(n nodeRow) int { return n.Published() }), func(n nodeRow) markup.Part { return strip(n.GPUs) }},
			textColumn("Model", func(n nodeRow) string { return strings.Join(n.Models, ", ") }),
			{"Memory promised", by(func(n nodeRow) float64 { return part(n.MemoryPromised, n.Memory) }), func(n nodeRow) markup.Part { return orDash(n.Published() > 0, memoryBar(n.MemoryPromised, n.Memory)) }},
			{"Compute promised", by(nodeRow.share), func(n nodeRow) markup.Part { return n.computeBar() }},
		}, use),
	}
	return page{"Fleet", markup.Parts{
		sums.draw("tiles"),
		section("Nodes", filterForm(q, "Nodes with a name, model, mode, health or claim"), nodes.draw(q, found)),
	}}, nil
}

// nodeRow is a node and the sums of its GPUs.
type nodeRow struct {
	rows.Node
	node fleet.Node
	use  rows.Use
}

// share returns the promised compute in percent of the node's.
func (n nodeRow) share() int64 {
	if n.Compute == 0 {
		return 0
	}
	return n.ComputePromised * 100 / n.Compute
}

func (n nodeRow) computeBar() markup.Part {
	return orDash(n.Compute > 0, amountBar(float64(n.share()), 100, fmt.Sprintf("%d%%", n.share())))
}

// sick returns the number of GPUs whose health is not ok.
func (n nodeRow) sick() int {
	return len(slices.DeleteFunc(slices.Clone(n.GPUs), func(g rows.GPU) bool { return g.Health.State == rows.HealthOK }))
}

const incompleteText = "its slices are being replaced"

func noNodes(r *reading) string {
	if len(r.nodes) == 0 {
		return "No node publishes devices of the driver."
	}
	return "No node matches the filter."
}

func namespacesPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(rows.Usages(r.nodes, r.at, r.uses()), func(u rows.Usage) bool { return !matches(q, u.Namespace) })
	cell := func(i int) func(rows.Usage) markup.Part {
		return func(u rows.Usage) markup.Part { return markup.Text(u.Cells()[i]) }
	}
	namespaces := list[rows.Usage]{
		name: "Namespaces", id: func(u rows.Usage) string { return u.Namespace }, standard: "namespace", empty: "No namespace holds a device.",
		columns: append([]column[rows.Usage]{
			{"Namespace", by(func(u rows.Usage) string { return u.Namespace }), func(u rows.Usage) markup.Part {
				return markup.E("a", markup.Attr("href", "/claims?q="+url.QueryEscape(u.Namespace+"/")), markup.Text(u.Namespace))
			}},
			{"Claims", by(func(u rows.Usage) int { return u.Claims }), cell(1)},
			{"GPUs", by(func(u rows.Usage) float64 { return u.GPUs }), cell(2)},
			{"Memory", by(func(u rows.Usage) int64 { return u.Memory.Value() }), cell(3)},
			{"Compute", by(func(u rows.Usage) int64 { return u.Compute }), cell(4)},
			{"Slots", by(func(u rows.Usage) int64 { return u.Slots }), cell(5)},
			{"GPU hours", by(func(u rows.Usage) float64 { return ptr.Deref(u.Hours, 0) }), cell(6)},
		}, useColumns(r, func(u rows.Usage) rows.Use { return u.Use }, nil)...),
	}
	return page{"Namespaces", markup.Parts{
		paragraph("hint", "Promised to the claims of each namespace now; the columns about use say what programs use. GPUs adds up the parts of each GPU's memory."),
		filterForm(q, "Namespaces with a name"), namespaces.draw(q, found),
	}}, nil
}
