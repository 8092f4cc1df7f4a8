// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/picture"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
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
	gpus := grid{name: "GPUs", heading: []string{"GPU", "Mode", "Model", "Claims", "Memory promised", "Compute promised", "Health"}}
	for _, g := range gpurows.GPUs([]fleet.Node{node}, nil) {
		gpus.add(g.Name, link(g.Name, "nodes", node.Name, "gpus", g.Name), modeBadge(g.Mode), markup.Text(gpurows.OrDash(g.Model)), markup.Text(fmt.Sprint(g.Claims)),
			memoryBar(g.MemoryPromised, g.Memory), computeBar(g.ComputePromised, g.Compute), healthBadge(g.Taints))
	}
	drawn := pictureOf(r.Cluster, node)
	drawn.Link = func(name string) string { return address("nodes", node.Name, "gpus", name) }
	rows := gpurows.Topologies(node)
	paths := grid{name: "Paths between GPUs", heading: []string{"GPU"}}
	for _, g := range rows {
		paths.heading = append(paths.heading, g.Name)
	}
	for _, g := range rows {
		cells := []string{g.Name}
		for _, p := range g.Paths {
			cells = append(cells, string(p))
		}
		paths.add(g.Name, texts(cells...)...)
	}
	return page{"Node " + node.Name, markup.Parts{
		breadcrumbs(markup.Text(node.Name)),
		markup.If(node.Incomplete, paragraph("alert", "The node publishes a part of its devices: "+incompleteText+". Until then no claim gets any of them.")),
		section("GPUs", gpus.draw()),
		section("Topology", markup.E("div", markup.Attr("class", "picture"), markup.Attr("role", "region"), markup.Attr("aria-label", "Picture of the topology"), markup.Attr("tabindex", "0"), picture.Draw(drawn, true)),
			markup.E("details", markup.E("summary", markup.Text("Paths between GPUs, as a table")), markup.E("div", markup.Attr("class", "matrix"), paths.draw()),
				paragraph("hint", "NV: one NVLink domain. PCI: one PCIe root. NODE: one NUMA node. SYS: two NUMA nodes. ?: a place is not published."))),
		holders(r, gpurows.Holders([]fleet.Node{node}, metav1.NamespaceAll, nil), "Holders"),
	}}, nil
}

func gpuPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	node, err := nodeOf(r, q)
	if err != nil {
		return page{}, err
	}
	node.GPUs = slices.DeleteFunc(slices.Clone(node.GPUs), func(g fleet.GPU) bool { return g.Name != q.PathValue("gpu") })
	if len(node.GPUs) == 0 {
		return page{}, fmt.Errorf("GPU %s of node %s: %w", q.PathValue("gpu"), node.Name, gpu.ErrNotFound)
	}
	only := []fleet.Node{node}
	g, place := gpurows.GPUs(only, nil)[0], node.GPUs[0].Place()
	var about facts
	about.text("Model", gpurows.OrDash(g.Model))
	about.add("Mode", modeBadge(g.Mode))
	about.add("Health", healthBadge(g.Taints))
	about.add("Memory promised", memoryBar(g.MemoryPromised, g.Memory))
	about.add("Compute promised", computeBar(g.ComputePromised, g.Compute))
	about.text("UUID", gpurows.OrDash(g.UUID))
	about.text("NUMA node", gpurows.OrDash(place.NUMANode))
	about.text("PCIe root", gpurows.OrDash(place.PCIeRoot))
	about.text("NVLink domain", gpurows.OrDash(place.NVLinkDomain))
	devices := grid{name: "Devices", heading: []string{"Device", "Kind", "Holders"}}
	attributes := grid{name: "Attributes", heading: []string{"Attribute", "Value"}, empty: "The GPU is not published as a whole."}
	for _, d := range node.GPUs[0].Devices {
		state := "published"
		if d.Published == nil {
			state = "held, but no longer published"
		}
		name := d.ID.Device
		devices.add(name, texts(name, gpurows.OrDash(string(d.Kind))+", "+state, gpurows.OrDash(gpurows.List(gpurows.ClaimNames(d))))...)
		if name == g.Name && d.Published != nil {
			addAttributes(&attributes, d.Published)
		}
	}
	return page{"GPU " + g.Name, markup.Parts{
		breadcrumbs(link(node.Name, "nodes", node.Name), markup.Text(g.Name)),
		about.draw("facts"),
		holders(r, gpurows.Holders(only, metav1.NamespaceAll, nil), "Holders"),
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
func holders(r *reading, rows []gpurows.Holder, heading string) markup.Part {
	t := grid{name: "Holders", heading: []string{"Claim", "Pod", "Container", "Device", "Memory", "Compute", "Held by", "Limits"}, empty: "No claim holds a device."}
	for _, h := range rows {
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
		t.add(strings.Join([]string{h.Namespace, h.Claim, h.Pod, h.Container, h.Device}, "/"), append(
			[]markup.Part{link(h.Namespace+"/"+h.Claim, "claims", h.Namespace, h.Claim), pod, markup.Text(gpurows.OrDash(h.Container)), deviceLink(r, h.Node, h.Device)},
			texts(gpurows.Gibibytes(h.Memory), h.ComputeText(), h.HeldBy(), gpurows.OrDash(strings.Join(limits, ", ")))...,
		)...)
	}
	return section(heading, t.draw())
}

// deviceLink returns a link to the GPU of a device; text only if it is not known.
func deviceLink(r *reading, node, device string) markup.Part {
	i := slices.IndexFunc(r.nodes, func(n fleet.Node) bool { return n.Name == node })
	if i >= 0 {
		for _, g := range r.nodes[i].GPUs {
			if slices.ContainsFunc(g.Devices, func(d fleet.Device) bool { return d.ID.Device == device }) {
				return link(device, "nodes", node, "gpus", g.Name)
			}
		}
	}
	return markup.Text(device)
}
