// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// claimRow is a claim with the classes and amounts of its requests.
type claimRow struct {
	rows.Claim
	claim            *resourceapi.ResourceClaim
	classes, amounts []string
	// foreign is true if a pod without the claim computes on one of its devices.
	foreign bool
}

func (c claimRow) name() string { return c.Namespace + "/" + c.Name }

// claimRows returns the claims about devices of the driver.
func (r *reading) claimRows() []claimRow {
	var all []claimRow
	for _, c := range r.Claims() {
		claim := r.claims[c.Namespace+"/"+c.Name]
		if !r.isOwn(claim) {
			continue
		}
		row := claimRow{Claim: c, claim: claim, foreign: len(r.ForeignProcesses(claim)) > 0}
		for _, request := range rows.Requests(claim) {
			row.classes, row.amounts = append(row.classes, request.Class), append(row.amounts, amountText(request))
		}
		all = append(all, row)
	}
	return all
}

// amountText returns the number of devices of a request, and the amounts of each.
func amountText(request rows.Request) string {
	shares := request.Amounts != "-"
	switch {
	case shares && request.Devices == "1":
		return request.Amounts
	case shares:
		return request.Devices + " × " + request.Amounts
	case request.Devices == "1":
		return "1 device"
	default:
		return request.Devices + " devices"
	}
}

// heldSince returns the time of the allocation of a claim; zero if it is not known.
func heldSince(claim *resourceapi.ResourceClaim) time.Time {
	if claim == nil || claim.Status.Allocation == nil || claim.Status.Allocation.AllocationTimestamp == nil {
		return time.Time{}
	}
	return claim.Status.Allocation.AllocationTimestamp.Time
}

// claimsPage shows the claims with devices of the driver, and claims that wait for some.
func claimsPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(r.claimRows(), func(c claimRow) bool {
		texts := append([]string{c.name(), c.State}, c.classes...)
		if c.foreign {
			texts = append(texts, foreignText)
		}
		for _, d := range c.Devices {
			texts = append(texts, d.Node, d.Device)
		}
		return !matches(q, append(texts, c.Pods...)...)
	})
	claims := list[claimRow]{
		name: "Claims", id: claimRow.name, standard: "claim", empty: "There is no such claim.",
		columns: []column[claimRow]{
			{"Claim", by(claimRow.name), func(c claimRow) markup.Part { return link(c.name(), "claims", c.Namespace, c.Name) }},
			{"State", by(func(c claimRow) string { return c.State }), claimRow.state},
			{"Class", by(func(c claimRow) string { return strings.Join(c.classes, " ") }), func(c claimRow) markup.Part { return lines(c.classes) }},
			{"Amount", nil, func(c claimRow) markup.Part { return lines(c.amounts) }},
			{"Devices", by(func(c claimRow) int { return len(c.Devices) }), func(c claimRow) markup.Part { return deviceLinks(r, c.Devices) }},
			{"Pods", by(func(c claimRow) int { return len(c.Pods) }), func(c claimRow) markup.Part { return podLinks(c.Claim) }},
			ageColumn(r, "Age", func(c claimRow) time.Time { return c.claim.CreationTimestamp.Time }),
		},
	}
	return page{"Claims", markup.Parts{filterForm(q, "Claims with a name, state, class, node, device or pod"), claims.draw(q, found)}}, nil
}

func (c claimRow) state() markup.Part {
	state := markup.Parts{markup.Text(c.State)}
	if c.Waits {
		state = append(state, markup.Text(", "), link("why?", "claims", c.Namespace, c.Name, "why"))
	}
	if c.foreign {
		state = append(state, markup.Text(", "), markup.E("span", markup.Attr("class", "tainted"), markup.Text("⚠ "+foreignText)))
	}
	return state
}

const foreignText = "foreign process"

// mostLines bounds the lines of a cell.
const mostLines = 8

// lines returns a list of texts, a number of them at most.
func lines(all []string) markup.Part {
	var items markup.Parts
	for _, text := range all[:min(mostLines, len(all))] {
		items = append(items, markup.E("li", markup.Text(text)))
	}
	return listOrDash(append(items, andMore(len(all)-mostLines)...))
}

func andMore(n int) markup.Parts {
	if n <= 0 {
		return nil
	}
	return markup.Parts{markup.E("li", markup.Text(fmt.Sprintf("and %d more", n)))}
}

// deviceLinks returns links to the devices of a claim, a number of them at most.
func deviceLinks(r *reading, all []rows.ClaimDevice) markup.Part {
	var items markup.Parts
	for _, d := range all[:min(mostLines, len(all))] {
		items = append(items, markup.E("li", deviceLink(r, d.Node, d.Device), markup.Text(" of "), nodeLink(r, d.Node)))
	}
	return listOrDash(append(items, andMore(len(all)-mostLines)...))
}

func podLinks(c rows.Claim) markup.Part {
	var items markup.Parts
	for _, name := range c.Pods {
		items = append(items, markup.E("li", link(name, "pods", c.Namespace, name)))
	}
	for _, name := range c.PodGroups {
		items = append(items, markup.E("li", markup.Text("of PodGroup "+name)))
	}
	return listOrDash(items)
}

// listOrDash returns a list of items, or a dash without any.
func listOrDash(items markup.Parts) markup.Part {
	if items == nil {
		return markup.Text("-")
	}
	return markup.E("ul", markup.Attr("class", "list"), items)
}

func claimPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	claim := rows.FindClaim(r.Objects, namespace, name)
	if claim == nil {
		return page{}, fmt.Errorf("claim %s/%s: %w", namespace, name, gpu.ErrNotFound)
	}
	row := r.Claim(claim)
	var about facts
	about.text("State", row.State)
	about.add("Pods", podLinks(row))
	about.add("Age", r.ageCell(claim.CreationTimestamp.Time))
	if since := heldSince(claim); !since.IsZero() {
		about.add("Has its devices for", r.ageCell(since))
	}
	if row.Waits {
		about.add("Reason", link("why it waits", "claims", namespace, name, "why"))
	}
	requests := grid{name: "Requests", heading: []string{"Request", "Class", "Devices", "Amounts", "Selectors"}}
	for _, request := range rows.Requests(claim) {
		requests.add(request.Name, append(texts(request.Name, request.Class, request.Devices, request.Amounts), markup.E("code", markup.Text(request.Selectors)))...)
	}
	var nodes []fleet.Node
	for _, node := range r.nodes {
		if slices.ContainsFunc(row.Devices, func(d rows.ClaimDevice) bool { return d.Node == node.Name }) {
			nodes = append(nodes, node)
		}
	}
	held := slices.DeleteFunc(r.Holders(nodes, namespace, r.uses()), func(h rows.Holder) bool { return h.Claim != name })
	reports := rows.Reports(claim)
	return page{"Claim " + namespace + "/" + name, markup.Parts{
		breadcrumbs(link("Claims", "claims"), markup.Text(namespace+"/"+name)),
		about.draw("facts"),
		r.foreignSection(r.ForeignProcesses(claim)),
		holders(r, held, "Devices"),
		markup.If(reports != nil, section("Reported by the agent", r.sentences(namespace, reports))),
		section("Requests", requests.draw()),
	}}, nil
}
