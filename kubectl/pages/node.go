// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// nodeOf returns the node of the page's address.
func nodeOf(r *reading, q *http.Request) (fleet.Node, error) {
	name := q.PathValue("node")
	i := slices.IndexFunc(r.nodes, func(n fleet.Node) bool { return n.Name == name })
	if i < 0 {
		return fleet.Node{}, fmt.Errorf("node %s: %w: it publishes no devices", name, gpu.ErrNotFound)
	}
	return r.nodes[i], nil
}

func nodePage(_ context.Context, r *reading, q *http.Request) (page, error) {
	node, err := nodeOf(r, q)
	if err != nil {
		return page{}, err
	}
	gpus := list[rows.GPU]{
		name: "GPUs", id: func(g rows.GPU) string { return g.Name }, standard: "gpu",
		columns: slices.Concat([]column[rows.GPU]{
			{"GPU", by(func(g rows.GPU) string { return g.Name }), func(g rows.GPU) markup.Part {
				return orDash(g.Name != "", link(g.Name, "nodes", node.Name, "gpus", g.Name))
			}},
			{"Health", by(func(g rows.GPU) string { return g.Health.Text(r.at) }), func(g rows.GPU) markup.Part { return r.health(g) }},
			{"Mode", by(func(g rows.GPU) string { return string(g.Mode) }), func(g rows.GPU) markup.Part { return modeBadge(g.Mode) }},
			textColumn("Model", func(g rows.GPU) string { return rows.OrDash(g.Model) }),
			{"Claims", by(func(g rows.GPU) int { return g.Claims }), text(func(g rows.GPU) string { return fmt.Sprint(g.Claims) })},
			{"Memory promised", by(func(g rows.GPU) float64 { return part(g.MemoryPromised, g.Memory) }), func(g rows.GPU) markup.Part { return promisedMemory(g) }},
			{"Compute promised", by(rows.GPU.ComputePart), func(g rows.GPU) markup.Part { return promisedCompute(g) }},
		}, useColumns(r, func(g rows.GPU) rows.Use { return g.Use }, func(g rows.GPU) resource.Quantity { return g.Memory })),
	}
	places := rows.Topologies(node)
	paths := grid{name: "Paths between GPUs", heading: []string{"GPU"}}
	for _, g := range places {
		paths.heading = append(paths.heading, g.Name)
	}
	for _, g := range places {
		cells := []string{g.Name}
		for _, p := range g.Paths {
			cells = append(cells, string(p))
		}
		paths.add(g.Name, texts(cells...)...)
	}
	return page{"Node " + node.Name, markup.Parts{
		breadcrumbs(markup.Text(node.Name)),
		markup.If(node.Incomplete, paragraph("alert", "The node publishes a part of its devices: "+incompleteText+". Until then no claim gets any of them.")),
		section("GPUs", gpus.draw(q, r.GPUs([]fleet.Node{node}, r.uses()))),
		section("Topology", markup.E("div", markup.Attr("class", "matrix"), paths.draw()),
			paragraph("hint", "NV: one NVLink domain. PCI: one PCIe root. NODE: one NUMA node. SYS: two NUMA nodes. ?: a place is not published.")),
		holders(r, r.Holders([]fleet.Node{node}, metav1.NamespaceAll, r.uses()), "Holders"),
	}}, nil
}

func (s *Site) gpuPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	node, err := nodeOf(r, q)
	if err != nil {
		return page{}, err
	}
	node.GPUs = slices.DeleteFunc(slices.Clone(node.GPUs), func(g fleet.GPU) bool { return g.Name != q.PathValue("gpu") })
	if len(node.GPUs) == 0 {
		return page{}, fmt.Errorf("GPU %s of node %s: %w", q.PathValue("gpu"), node.Name, gpu.ErrNotFound)
	}
	only := []fleet.Node{node}
	g, place := r.GPUs(only, r.uses())[0], node.GPUs[0].Place()
	var about facts
	about.text("Model", rows.OrDash(g.Model))
	about.add("Mode", modeBadge(g.Mode))
	about.add("Health", r.health(g))
	about.text("Taints", strings.Join(g.Taints, ", "))
	about.add("Memory promised", promisedMemory(g))
	about.add("Compute promised", promisedCompute(g))
	if r.uses() != nil {
		about.add("Memory used", memoryUsed(g.Use, g.Memory))
		about.add("SM used", smUsed(g.Use, true))
	}
	if g.Foreign != nil {
		about.text("Processes without a claim", g.Foreign.Text(r.at))
	}
	about.text("UUID", rows.OrDash(g.UUID))
	about.text("NUMA node", rows.OrDash(place.NUMANode))
	about.text("PCIe root", rows.OrDash(place.PCIeRoot))
	about.text("NVLink domain", rows.OrDash(place.NVLinkDomain))
	devices := grid{name: "Devices", heading: []string{"Device", "Kind", "Holders"}}
	attributes := grid{name: "Attributes", heading: []string{"Attribute", "Value"}, empty: "The GPU is not published as a whole."}
	for _, d := range node.GPUs[0].Devices {
		state := "published"
		if d.Published == nil {
			state = "held, but no longer published"
		}
		name := d.ID.Device
		devices.add(name, texts(name, rows.OrDash(string(d.Kind))+", "+state, rows.OrDash(rows.List(rows.ClaimNames(d))))...)
		if name == g.Name && d.Published != nil {
			addAttributes(&attributes, d.Published)
		}
	}
	return page{"GPU " + g.Name, markup.Parts{
		breadcrumbs(link(node.Name, "nodes", node.Name), markup.Text(g.Name)),
		about.draw("facts"),
		r.foreignSection(r.foreignOn(node.Name, node.GPUs[0])),
		holders(r, r.Holders(only, metav1.NamespaceAll, r.uses()), "Holders"),
		section("Devices", devices.draw()),
		section("Attributes and capacities", paragraph("hint", "Selectors of claims use these names and values."), attributes.draw()),
	}}, nil
}

// addAttributes adds the attributes and capacities of a device, in order of the names.
func addAttributes(t *grid, d *resourceapi.Device) {
	values := map[string]string{}
	for name, value := range d.Attributes {
		values[string(name)] = fleet.ValueText(value)
	}
	for name, value := range d.Capacity {
		values["capacity "+string(name)] = value.Value.String()
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.add(name, texts(name, values[name])...)
	}
}

// holders returns a section with the containers that have a device.
func holders(r *reading, all []rows.Holder, heading string) markup.Part {
	t := grid{name: "Holders", heading: []string{"Claim", "Health", "Pod", "Container", "Device", "Memory", "Compute", "Limited by", "Limits"}, empty: "No claim holds a device."}
	used := r.uses() != nil
	if used {
		t.heading = append(t.heading, "Memory used", "SM used")
	}
	t.heading = append(t.heading, "Age")
	for _, h := range all {
		var limits []string
		process, container := h.Limits()
		if process != "" {
			limits = append(limits, process+" a process")
		}
		if container != "" {
			limits = append(limits, container+" a container")
		}
		var pod markup.Part = markup.Text("-")
		if h.Pod != "" {
			pod = link(h.Pod, "pods", h.Namespace, h.Pod)
		}
		memory := "-"
		if !h.Memory.IsZero() {
			memory = rows.Gibibytes(h.Memory)
		}
		cells := []markup.Part{
			link(h.Namespace+"/"+h.Claim, "claims", h.Namespace, h.Claim), r.health(rows.GPU{Health: h.Health}), pod, markup.Text(rows.OrDash(h.Container)), deviceLink(r, h.Node, h.Device),
			markup.Text(memory), markup.Text(h.ComputeText()), markup.Text(h.HeldBy()), markup.Text(rows.OrDash(strings.Join(limits, ", "))),
		}
		if used {
			cells = append(cells, memoryUsed(h.Use, resource.Quantity{}), smUsed(h.Use, false))
		}
		t.add(strings.Join([]string{h.Namespace, h.Claim, h.Pod, h.Container, h.Device}, "/"), append(cells, r.ageCell(heldSince(r.claims[h.Namespace+"/"+h.Claim])))...)
	}
	return section(heading, t.draw())
}

// deviceLink returns a link to the GPU of a device; text only if it is not known.
func deviceLink(r *reading, node, device string) markup.Part {
	if gpu := r.places[node][device]; gpu != "" {
		return link(device, "nodes", node, "gpus", gpu)
	}
	return markup.Text(device)
}

// nodeLink returns a link to a node; text only if it is not known.
func nodeLink(r *reading, name string) markup.Part {
	if r.places[name] == nil {
		return markup.Text(name)
	}
	return link(name, "nodes", name)
}

// nodeLinks returns links to nodes, a number of them at most.
func (r *reading) nodeLinks(names []string) markup.Parts {
	var parts markup.Parts
	for i, name := range names[:min(mostLines, len(names))] {
		if i > 0 {
			parts = append(parts, markup.Text(", "))
		}
		parts = append(parts, nodeLink(r, name))
	}
	if more := len(names) - mostLines; more > 0 {
		parts = append(parts, markup.Text(fmt.Sprintf(" and %d more", more)))
	}
	return parts
}
