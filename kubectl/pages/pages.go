// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// fleetPage shows the GPUs of all nodes.
func fleetPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	all := r.GPUs(r.nodes, r.uses())
	gpus, modes, states := 0, map[fleet.Mode]int{}, map[rows.HealthState]int{}
	for _, g := range all {
		if g.Name != "" {
			gpus++
			modes[g.Mode]++
		}
		states[g.Health.State]++
	}
	var sums markup.Parts
	add := func(name string, value markup.Part) {
		sums = append(sums, markup.E("div", markup.E("dt", markup.Text(name)), markup.E("dd", value)))
	}
	add("Nodes", markup.Text(fmt.Sprint(len(r.nodes))))
	add("GPUs", markup.Text(fmt.Sprint(gpus)))
	if n := modes[rows.ModeNotYours]; n > 0 {
		add("Free, or not yours", markup.Text(fmt.Sprintf("at most %d", n+modes[fleet.ModeFree])))
	} else {
		add("Free", markup.Text(fmt.Sprint(modes[fleet.ModeFree])))
	}
	add("With taints", markup.Text(fmt.Sprint(states[rows.HealthTainted])))
	if n := states[rows.HealthUnknown] + states[rows.HealthNotPublished]; n > 0 {
		add("Health unknown", markup.Text(fmt.Sprint(n)))
	}
	add("Waiting pods", link(fmt.Sprint(len(r.waiting)), "pods"))
	gpuTable := table{Table: rows.GPUTable(all, r.uses(), r.at), name: "GPUs", empty: "No node publishes a GPU like this."}
	return page{"Fleet", markup.Parts{markup.E("dl", markup.Attr("class", "tiles"), sums), section("GPUs", filterForm(q), gpuTable.draw(r, q))}}, nil
}

// nodePage shows the GPUs of a node, their paths and their holders.
func nodePage(_ context.Context, r *reading, q *http.Request) (page, error) {
	name := q.PathValue("node")
	i := slices.IndexFunc(r.nodes, func(n fleet.Node) bool { return n.Name == name })
	if i < 0 {
		return page{}, fmt.Errorf("node %s: %w: it publishes no devices", name, gpu.ErrNotFound)
	}
	only := r.nodes[i : i+1]
	gpus := table{Table: rows.GPUTable(r.GPUs(only, r.uses()), r.uses(), r.at), name: "GPUs", empty: "The node publishes no GPU like this."}
	paths := table{Table: rows.TopologyTable(rows.Topologies(only[0])), name: "Paths between GPUs", node: name, empty: "The node publishes no GPU like this."}
	return page{"Node " + name, markup.Parts{
		breadcrumbs(markup.Text(name)), filterForm(q),
		section("GPUs", gpus.draw(r, q)),
		section("Holders", r.holders(r.Holders(only, metav1.NamespaceAll, r.uses())).draw(r, q)),
		section("Topology", markup.E("div", markup.Attr("class", "matrix"), paths.draw(r, q)),
			paragraph("hint", "NV: one NVLink domain. PCI: one PCIe root. NODE: one NUMA node. SYS: two NUMA nodes. ?: a place is not published.")),
	}}, nil
}

func (r *reading) holders(all []rows.Holder) table {
	return table{Table: rows.HolderTable(all, r.uses(), r.at), name: "Holders", empty: "No claim like this holds a device."}
}

// holdersPage shows the containers with devices, of all namespaces.
func holdersPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	return page{"Holders", markup.Parts{filterForm(q), r.holders(r.Holders(r.nodes, metav1.NamespaceAll, r.uses())).draw(r, q)}}, nil
}

func namespacesPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	t := table{Table: rows.UsageTable(rows.Usages(r.nodes, r.at, r.uses()), r.uses()), name: "Namespaces", empty: "No namespace holds a device."}
	return page{"Namespaces", markup.Parts{
		paragraph("hint", "Promised to the claims of each namespace now; the columns about use say what programs use. GPUS adds up the parts of each GPU's memory."),
		filterForm(q), t.draw(r, q),
	}}, nil
}

// findingsPage shows the findings of the doctor that are not ok.
func (s *Site) findingsPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	if r.inspection == nil && r.inspectionFailure == nil {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		r.inspection, r.inspectionFailure = s.inspections.get(limited)
	}
	stopped := errors.Is(r.inspectionFailure, context.DeadlineExceeded) || errors.Is(r.inspectionFailure, context.Canceled)
	failed := r.inspectionFailure != nil && !stopped
	switch {
	case r.inspection == nil && failed:
		return page{}, r.inspectionFailure
	case r.inspection == nil:
		return page{"Findings", markup.Parts{paragraph("note", "The cluster is being checked. The findings appear here.")}}, nil
	}
	var parts markup.Parts
	if failed {
		parts = append(parts, paragraph("alert", "The last check failed: "+r.inspectionFailure.Error()+". These findings are older."))
	}
	for _, problem := range r.inspection.Problems {
		parts = append(parts, paragraph("note", problem))
	}
	t := table{Table: rows.Table{Heading: []string{"STATE", "CODE", "OBJECT", "FOUND", "MEANING", "REMEDY"}}, name: "Findings", empty: "No check has found anything like this."}
	for _, f := range r.inspection.Findings {
		if f.State != doctor.OK {
			t.Rows = append(t.Rows, []string{string(f.State), f.Title(), f.Object, f.Found, rows.OrDash(f.Meaning), rows.OrDash(f.Remedy)})
		}
	}
	return page{"Findings", append(parts, filterForm(q), t.draw(r, q), paragraph("hint", "Checked at "+clock(r.inspection.at)+"."))}, nil
}

// address returns the path of a page.
func address(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + url.PathEscape(name))
	}
	return b.String()
}

// link returns a link to a page of this site.
func link(text string, names ...string) *markup.Element {
	return markup.E("a", markup.Attr("href", address(names...)), markup.Text(text))
}

// anchor returns a link to an address; text only if it is "".
func anchor(text, to string) markup.Part {
	if to == "" {
		return markup.Text(text)
	}
	return markup.E("a", markup.Attr("href", to), markup.If(strings.HasPrefix(to, "http"), markup.Attr("rel", "noreferrer")), markup.Text(text))
}

func paragraph(class, text string) *markup.Element {
	return markup.E("p", markup.Attr("class", class), markup.Text(text))
}

func section(heading string, parts ...markup.Part) *markup.Element {
	return markup.E("section", markup.E("h2", markup.Text(heading)), markup.Parts(parts))
}

// breadcrumbs returns the way to a page from the fleet.
func breadcrumbs(links ...markup.Part) *markup.Element {
	items := markup.Parts{markup.E("li", link("Fleet", ""))}
	for _, l := range links {
		items = append(items, markup.E("li", l))
	}
	return markup.E("nav", markup.Attr("class", "path"), markup.Attr("aria-label", "Path to this page"), markup.E("ol", items))
}
