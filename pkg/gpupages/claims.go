// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

// claimsPage shows the claims with devices of the driver, and claims without devices.
func claimsPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(r.Claims(), func(c gpurows.Claim) bool {
		texts := []string{c.Namespace + "/" + c.Name, c.State}
		for _, d := range c.Devices {
			texts = append(texts, d.Node, d.Device)
		}
		return !matches(q, append(texts, c.Pods...)...)
	})
	shown, parts := cut(q, found, "Claims")
	t := grid{name: "Claims", heading: []string{"Claim", "State", "Devices", "Pods"}, empty: "There is no such claim."}
	for _, c := range shown {
		state := markup.Parts{markup.Text(c.State)}
		if c.Waits {
			state = append(state, markup.Text(", "), link("why?", "claims", c.Namespace, c.Name, "why"))
		}
		t.add(c.Namespace+"/"+c.Name, link(c.Namespace+"/"+c.Name, "claims", c.Namespace, c.Name), state, deviceLinks(r, c.Devices), podLinks(c))
	}
	return page{"Claims", markup.Parts{filterForm(q, "Claims with a name, state, node, device or pod"), t.draw(), parts}}, nil
}

// deviceLinks returns links to the devices of a claim, a number of them at most.
func deviceLinks(r *reading, all []gpurows.ClaimDevice) markup.Part {
	const most = 8
	var items markup.Parts
	for _, d := range all[:min(most, len(all))] {
		items = append(items, markup.E("li", deviceLink(r, d.Node, d.Device), markup.Text(" of "+d.Node)))
	}
	if more := len(all) - most; more > 0 {
		items = append(items, markup.E("li", markup.Text(fmt.Sprintf("and %d more", more))))
	}
	return listOrDash(items)
}

func podLinks(c gpurows.Claim) markup.Part {
	var items markup.Parts
	for _, name := range c.Pods {
		items = append(items, markup.E("li", link(name, "pods", c.Namespace, name)))
	}
	for _, name := range c.PodGroups {
		items = append(items, markup.E("li", markup.Text("of PodGroup "+name)))
	}
	return listOrDash(items)
}

func listOrDash(items markup.Parts) markup.Part {
	if items == nil {
		return markup.Text("-")
	}
	return markup.E("ul", markup.Attr("class", "list"), items)
}

func claimPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	claim := gpurows.FindClaim(r.Objects, namespace, name)
	if claim == nil {
		return page{}, fmt.Errorf("claim %s/%s: %w", namespace, name, gpu.ErrNotFound)
	}
	row := r.Claim(claim)
	var about facts
	about.text("State", row.State)
	about.add("Pods", podLinks(row))
	if row.Waits {
		about.add("Reason", link("why it waits", "claims", namespace, name, "why"))
	}
	requests := grid{name: "Requests", heading: []string{"Request", "Class", "Devices", "Amounts", "Selectors"}}
	for _, request := range gpurows.Requests(claim) {
		requests.add(request.Name, append(texts(request.Name, request.Class, request.Devices, request.Amounts), markup.E("code", markup.Text(request.Selectors)))...)
	}
	var nodes []fleet.Node
	for _, node := range r.nodes {
		if slices.ContainsFunc(row.Devices, func(d gpurows.ClaimDevice) bool { return d.Node == node.Name }) {
			nodes = append(nodes, node)
		}
	}
	held := slices.DeleteFunc(gpurows.Holders(nodes, namespace, nil), func(h gpurows.Holder) bool { return h.Claim != name })
	reports := gpurows.Reports(claim)
	return page{"Claim " + namespace + "/" + name, markup.Parts{
		breadcrumbs(link("Claims", "claims"), markup.Text(namespace+"/"+name)),
		about.draw("facts"),
		holders(r, held, "Devices"),
		markup.If(reports != nil, section("Reported by the agent", sentenceList(reports))),
		section("Requests", requests.draw()),
	}}, nil
}
