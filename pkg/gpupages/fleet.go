// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

// fleetPage shows all nodes.
func fleetPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	var total, promised resource.Quantity
	gpus, tainted, modesOf := 0, 0, map[fleet.Mode]int{}
	var found []gpurows.Node
	for _, node := range r.rows {
		gpus += len(node.GPUs)
		total.Add(node.Memory)
		promised.Add(node.MemoryPromised)
		texts := append([]string{node.Name}, node.Claims...)
		for _, g := range node.GPUs {
			modesOf[g.Mode]++
			if len(g.Taints) > 0 {
				tainted++
			}
			texts = append(append(texts, g.Name, g.Model, g.UUID, string(g.Mode)), g.Taints...)
		}
		if matches(q, texts...) {
			found = append(found, node)
		}
	}
	var sums facts
	sums.text("Nodes", fmt.Sprint(len(r.rows)))
	sums.text("GPUs", fmt.Sprint(gpus))
	sums.text("Free", fmt.Sprint(modesOf[fleet.ModeFree]))
	sums.text("With taints", fmt.Sprint(tainted))
	sums.add("In use", markup.Parts{markup.Text(fmt.Sprint(gpus - modesOf[fleet.ModeFree])), legend(modesOf)})
	sums.add("Memory promised", memoryBar(promised, total))
	sums.add("Waiting pods", link(fmt.Sprint(len(r.WaitingPods())), "pods"))

	shown, parts := cut(q, found, "Nodes")
	nodes := grid{name: "Nodes", heading: []string{"Node", "GPUs", "Model", "Memory promised", "Compute promised", "Health"}, empty: noNodes(r)}
	for _, node := range shown {
		share := int64(0)
		if node.Compute > 0 {
			share = node.ComputePromised * 100 / node.Compute
		}
		health := healthBadge(node.Taints)
		if node.Incomplete {
			health = markup.Parts{markup.Text("⚠ " + incompleteText)}
		}
		nodes.add(node.Name, link(node.Name, "nodes", node.Name), strip(node.GPUs), markup.Text(strings.Join(node.Models, ", ")),
			memoryBar(node.MemoryPromised, node.Memory), computeBar(share, 100), health)
	}
	return page{"Fleet", markup.Parts{
		sums.draw("tiles"),
		section("Nodes", filterForm(q, "Nodes with a name, model, mode, taint or claim"), nodes.draw(), parts),
	}}, nil
}

const incompleteText = "its slices are being replaced"

func noNodes(r *reading) string {
	if len(r.nodes) == 0 {
		return "No node publishes devices of the driver."
	}
	return "No node matches the filter."
}

func namespacesPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(gpurows.Usages(r.nodes, r.at, nil), func(u gpurows.Usage) bool { return !matches(q, u.Namespace) })
	shown, parts := cut(q, found, "Namespaces")
	t := grid{name: "Namespaces", heading: []string{"Namespace", "Claims", "GPUs", "Memory", "Compute", "Slots", "GPU hours"}, empty: "No namespace holds a device."}
	for _, u := range shown {
		cells := texts(u.Cells()...)
		cells[0] = markup.E("a", markup.Attr("href", "/claims?q="+url.QueryEscape(u.Namespace+"/")), cells[0])
		t.add(u.Namespace, cells...)
	}
	return page{"Namespaces", markup.Parts{
		paragraph("hint", "Promised to the claims of each namespace now, not used by programs. GPUs adds up the parts of each GPU's memory."),
		filterForm(q, "Namespaces with a name"), t.draw(), parts,
	}}, nil
}
