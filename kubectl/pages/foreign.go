// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// foreignTaints returns the number of GPUs on which a pod without a claim computes.
func (r *reading) foreignTaints() int {
	n := 0
	for _, node := range r.nodes {
		for _, g := range node.GPUs {
			if slices.ContainsFunc(g.Devices, hasForeignTaint) {
				n++
			}
		}
	}
	return n
}

func hasForeignTaint(d fleet.Device) bool {
	return d.Published != nil && slices.ContainsFunc(d.Published.Taints, rows.IsForeignProcess)
}

// foreignSection returns the reports of foreign processes; none if there are none.
func (r *reading) foreignSection(reports []rows.ForeignProcess) markup.Parts {
	if len(reports) == 0 {
		return nil
	}
	var items markup.Parts
	for _, report := range reports[:min(mostLines, len(reports))] {
		items = append(items, markup.E("li", deviceLink(r, report.Node, report.Device), markup.Text(" of "), nodeLink(r, report.Node), markup.Text(": "+report.Message)))
	}
	return markup.Parts{section("Foreign processes", paragraph("alert", "A pod that has no claim for the device computes on it."), markup.E("ul", append(items, andMore(len(reports)-mostLines)...)))}
}

// foreignOn returns the reports of foreign processes on the devices of a GPU.
func (r *reading) foreignOn(node string, g fleet.GPU) []rows.ForeignProcess {
	var all []rows.ForeignProcess
	for _, d := range g.Devices {
		for _, h := range d.Holders {
			for _, report := range r.ForeignProcesses(h.Claim) {
				if report.Node == node && report.Device == d.ID.Device && !slices.Contains(all, report) {
					all = append(all, report)
				}
			}
		}
		if hasForeignTaint(d) && len(all) == 0 {
			all = append(all, rows.ForeignProcess{Node: node, Device: d.ID.Device, Message: "the agent's log names the pod"})
		}
	}
	return all
}

// foreignTile adds the number of GPUs with foreign processes to the sums of the fleet.
func (r *reading) foreignTile(sums *facts) {
	if n := r.foreignTaints(); n > 0 {
		sums.add("GPUs with foreign processes", markup.E("span", markup.Attr("class", "count warning"),
			markup.E("a", markup.Attr("href", "/?q=foreign-process"), markup.Text(fmt.Sprint(n)))))
	}
}
