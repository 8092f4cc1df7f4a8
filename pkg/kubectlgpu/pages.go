// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/picture"
)

// fleetPage shows all nodes.
func fleetPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	var total, promised resource.Quantity
	gpus, tainted, modesOf := 0, 0, map[fleet.Mode]int{}
	var found []fleet.Node
	for _, node := range r.nodes {
		texts := []string{node.Name}
		for _, g := range node.GPUs {
			gpus++
			modesOf[g.Mode]++
			total.Add(g.Memory.Total)
			promised.Add(g.Memory.Promised)
			bad := taints(g)
			if len(bad) > 0 {
				tainted++
			}
			texts = append(append(append(texts, g.Name, g.Model, g.UUID, string(g.Mode)), bad...), claimNames(g.Devices...)...)
		}
		if matches(q, texts...) {
			found = append(found, node)
		}
	}
	var sums facts
	sums.text("Nodes", fmt.Sprint(len(r.nodes)))
	sums.text("GPUs", fmt.Sprint(gpus))
	sums.text("Free", fmt.Sprint(modesOf[fleet.ModeFree]))
	sums.text("With taints", fmt.Sprint(tainted))
	sums.add("In use", markup.Parts{markup.Text(fmt.Sprint(gpus - modesOf[fleet.ModeFree])), legend(modesOf)})
	sums.add("Memory promised", memoryBar(promised, total))
	sums.add("Waiting pods", link(fmt.Sprint(len(waitingPods(r))), "pods"))

	shown, parts := cut(q, found, "Nodes")
	nodes := grid{name: "Nodes", heading: []string{"Node", "GPUs", "Model", "Memory promised", "Compute promised", "Health"}, empty: noNodes(r)}
	for _, node := range shown {
		var memory, promised resource.Quantity
		var compute, computePromised int64
		var models, bad []string
		for _, g := range node.GPUs {
			memory.Add(g.Memory.Total)
			promised.Add(g.Memory.Promised)
			compute += g.Compute.Total
			computePromised += g.Compute.Promised
			models = append(models, orDash(g.Model))
			bad = append(bad, taints(g)...)
		}
		share := int64(0)
		if compute > 0 {
			share = computePromised * 100 / compute
		}
		slices.Sort(models)
		slices.Sort(bad)
		health := healthBadge(slices.Compact(bad))
		if node.Incomplete {
			health = markup.Parts{markup.Text("⚠ " + incompleteText)}
		}
		nodes.add(node.Name, link(node.Name, "nodes", node.Name), strip(node.GPUs), markup.Text(strings.Join(slices.Compact(models), ", ")),
			memoryBar(promised, memory), computeBar(share, 100), health)
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
	for _, g := range gpuItems([]fleet.Node{node}) {
		gpus.add(g.Name, link(g.Name, "nodes", node.Name, "gpus", g.Name), modeBadge(g.Mode), markup.Text(orDash(g.Model)), markup.Text(fmt.Sprint(g.Claims)),
			memoryBar(g.MemoryPromised, g.Memory), computeBar(g.ComputePromised, g.Compute), healthBadge(g.Taints))
	}
	drawn := r.pictureOf(node)
	drawn.Link = func(name string) string { return address("nodes", node.Name, "gpus", name) }
	items := topologyItems(node)
	paths := grid{name: "Paths between GPUs", heading: []string{"GPU"}}
	for _, g := range items {
		paths.heading = append(paths.heading, g.Name)
	}
	for _, g := range items {
		row := []markup.Part{markup.Text(g.Name)}
		for _, p := range g.Paths {
			row = append(row, markup.Text(string(p)))
		}
		paths.add(g.Name, row...)
	}
	return page{"Node " + node.Name, markup.Parts{
		breadcrumbs(markup.Text(node.Name)),
		markup.If(node.Incomplete, paragraph("alert", "The node publishes a part of its devices: "+incompleteText+". Until then no claim gets any of them.")),
		section("GPUs", gpus.draw()),
		section("Topology", markup.E("div", markup.Attr("class", "picture"), markup.Attr("role", "region"), markup.Attr("aria-label", "Picture of the topology"), markup.Attr("tabindex", "0"), picture.Draw(drawn, true)),
			markup.E("details", markup.E("summary", markup.Text("Paths between GPUs, as a table")), markup.E("div", markup.Attr("class", "matrix"), paths.draw()),
				paragraph("hint", "NV: one NVLink domain. PCI: one PCIe root. NODE: one NUMA node. SYS: two NUMA nodes. ?: a place is not published."))),
		section("Holders", holdersGrid(r, holderItems([]fleet.Node{node}, metav1.NamespaceAll)).draw()),
	}}, nil
}

// holdersGrid returns the table of containers with a device.
func holdersGrid(r *reading, items []holderItem) *grid {
	t := grid{name: "Holders", heading: []string{"Claim", "Pod", "Container", "Device", "Memory", "Compute", "Held by", "Limits"}, empty: "No claim holds a device."}
	for _, h := range items {
		compute, by, limits := "-", "-", "-"
		if h.Compute > 0 {
			compute = fmt.Sprintf("%d%%", h.Compute)
		}
		if s := h.Share; s != nil {
			by = fmt.Sprintf("%s, memory %s, compute %s", strings.ToLower(string(s.Strategy)), s.MemoryEnforcement, s.ComputeEnforcement)
			var all []string
			if s.MemoryLimit != nil {
				all = append(all, gibibytes(*s.MemoryLimit)+" a process")
			}
			if s.ContainerMemoryLimit != nil {
				all = append(all, gibibytes(*s.ContainerMemoryLimit)+" a container")
			}
			limits = orDash(strings.Join(all, ", "))
		}
		if h.Admin {
			by = "monitors"
		}
		pod := markup.Parts{markup.Text("-")}
		if h.Pod != "" {
			pod = markup.Parts{link(h.Pod, "pods", h.Namespace, h.Pod)}
		}
		t.add(strings.Join([]string{h.Namespace, h.Claim, h.Pod, h.Container, h.Device}, "/"),
			link(h.Namespace+"/"+h.Claim, "claims", h.Namespace, h.Claim), pod, markup.Text(orDash(h.Container)), deviceLink(r, h.Node, h.Device),
			markup.Text(gibibytes(h.Memory)), markup.Text(compute), markup.Text(by), markup.Text(limits))
	}
	return &t
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

func gpuPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	node, err := nodeOf(r, q)
	if err != nil {
		return page{}, err
	}
	i := slices.IndexFunc(node.GPUs, func(g fleet.GPU) bool { return g.Name == q.PathValue("gpu") })
	if i < 0 {
		return page{}, fmt.Errorf("GPU %s of node %s: %w", q.PathValue("gpu"), node.Name, gpu.ErrNotFound)
	}
	g := node.GPUs[i]
	place := g.Place()
	var about facts
	about.text("Model", orDash(g.Model))
	about.add("Mode", modeBadge(g.Mode))
	about.add("Health", healthBadge(taints(g)))
	about.add("Memory promised", memoryBar(g.Memory.Promised, g.Memory.Total))
	about.add("Compute promised", computeBar(g.Compute.Promised, g.Compute.Total))
	about.text("UUID", orDash(g.UUID))
	about.text("NUMA node", orDash(place.NUMANode))
	about.text("PCIe root", orDash(place.PCIeRoot))
	about.text("NVLink domain", orDash(place.NVLinkDomain))
	devices := grid{name: "Devices", heading: []string{"Device", "Kind", "Holders"}}
	attributes := grid{name: "Attributes", heading: []string{"Attribute", "Value"}, empty: "The GPU is not published as a whole."}
	for _, d := range g.Devices {
		state := "published"
		if d.Published == nil {
			state = "held, but no longer published"
		}
		holders := "-"
		if names := claimNames(d); len(names) > 0 {
			holders = list(names)
		}
		devices.add(d.ID.Device, markup.Text(d.ID.Device), markup.Text(orDash(string(d.Kind))+", "+state), markup.Text(holders))
		if d.ID.Device == g.Name && d.Published != nil {
			addAttributes(&attributes, d.Published)
		}
	}
	holders := holderItems([]fleet.Node{{Name: node.Name, GPUs: []fleet.GPU{g}}}, metav1.NamespaceAll)
	return page{"GPU " + g.Name, markup.Parts{
		breadcrumbs(link(node.Name, "nodes", node.Name), markup.Text(g.Name)),
		about.draw("facts"),
		section("Holders", holdersGrid(r, holders).draw()),
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
		t.add(name, markup.Text(name), markup.Text(values[name]))
	}
}

// results returns the claim's devices of the driver.
func results(r *reading, claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results), func(d resourceapi.DeviceRequestAllocationResult) bool { return d.Driver != r.Driver })
}

// claimState returns the state of a claim in a word or two.
func claimState(claim *resourceapi.ResourceClaim) string {
	switch {
	case claim.DeletionTimestamp != nil:
		return "ends"
	case claim.Status.Allocation == nil:
		return "waits"
	case len(claim.Status.ReservedFor) == 0:
		return "has devices, no pod"
	default:
		return "in use"
	}
}

// claimsPage shows the claims with devices of the driver, and claims without devices.
func claimsPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	var found []*resourceapi.ResourceClaim
	for _, claim := range r.objects.Claims {
		own := results(r, claim)
		if claim.Status.Allocation != nil && own == nil {
			continue
		}
		texts := []string{claim.Namespace + "/" + claim.Name, claimState(claim)}
		for _, d := range own {
			texts = append(texts, d.Pool, d.Device)
		}
		if matches(q, append(texts, reservedPods(r, claim)...)...) {
			found = append(found, claim)
		}
	}
	slices.SortFunc(found, func(a, b *resourceapi.ResourceClaim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	shown, parts := cut(q, found, "Claims")
	t := grid{name: "Claims", heading: []string{"Claim", "State", "Devices", "Pods"}, empty: "There is no such claim."}
	for _, claim := range shown {
		state := markup.Parts{markup.Text(claimState(claim))}
		if claim.Status.Allocation == nil {
			state = append(state, markup.Text(", "), link("why?", "claims", claim.Namespace, claim.Name, "why"))
		}
		t.add(claim.Namespace+"/"+claim.Name, link(claim.Namespace+"/"+claim.Name, "claims", claim.Namespace, claim.Name), state,
			deviceList(r, results(r, claim)), podLinks(r, claim))
	}
	return page{"Claims", markup.Parts{filterForm(q, "Claims with a name, state, node, device or pod"), t.draw(), parts}}, nil
}

// deviceList returns links to the devices of a claim, a number of them at most.
func deviceList(r *reading, all []resourceapi.DeviceRequestAllocationResult) markup.Part {
	const most = 8
	var parts markup.Parts
	for i, d := range all {
		if i == most {
			parts = append(parts, markup.E("li", markup.Text(fmt.Sprintf("and %d more", len(all)-most))))
			break
		}
		parts = append(parts, markup.E("li", deviceLink(r, d.Pool, d.Device), markup.Text(" of "+d.Pool)))
	}
	if parts == nil {
		return markup.Text("-")
	}
	return markup.E("ul", markup.Attr("class", "list"), parts)
}

// reservedPods returns the names of the pods that a claim is reserved for, themselves or by
// their PodGroup.
func reservedPods(r *reading, claim *resourceapi.ResourceClaim) []string {
	var names []string
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			names = append(names, consumer.Name)
		}
	}
	if len(fleet.PodGroups(claim)) > 0 {
		for _, pod := range fleet.Consumers(claim, r.objects.Pods) {
			names = append(names, pod.Name)
		}
	}
	return names
}

func podLinks(r *reading, claim *resourceapi.ResourceClaim) markup.Part {
	var parts markup.Parts
	for _, name := range reservedPods(r, claim) {
		parts = append(parts, markup.E("li", link(name, "pods", claim.Namespace, name)))
	}
	for _, name := range fleet.PodGroups(claim) {
		parts = append(parts, markup.E("li", markup.Text("of PodGroup "+name)))
	}
	if parts == nil {
		return markup.Text("-")
	}
	return markup.E("ul", markup.Attr("class", "list"), parts)
}

func claimPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	claim := findClaim(r.objects, namespace, name)
	if claim == nil {
		return page{}, fmt.Errorf("claim %s/%s: %w", namespace, name, gpu.ErrNotFound)
	}
	var about facts
	about.text("State", claimState(claim))
	about.add("Pods", podLinks(r, claim))
	if claim.Status.Allocation == nil {
		about.add("Reason", link("why it waits", "claims", namespace, name, "why"))
	}
	requests := grid{name: "Requests", heading: []string{"Request", "Class", "Devices", "Amounts", "Selectors"}}
	for _, request := range claim.Spec.Devices.Requests {
		addRequest(&requests, request)
	}
	var held []holderItem
	for _, d := range results(r, claim) {
		i := slices.IndexFunc(r.nodes, func(n fleet.Node) bool { return n.Name == d.Pool })
		if i >= 0 && !slices.ContainsFunc(held, func(h holderItem) bool { return h.Node == d.Pool }) {
			held = append(held, slices.DeleteFunc(holderItems(r.nodes[i:i+1], namespace), func(h holderItem) bool { return h.Claim != name })...)
		}
	}
	reports := deviceFacts(claim)
	return page{"Claim " + namespace + "/" + name, markup.Parts{
		breadcrumbs(link("Claims", "claims"), markup.Text(namespace+"/"+name)),
		about.draw("facts"),
		section("Devices", holdersGrid(r, held).draw()),
		markup.If(reports != nil, section("Reported by the agent", sentenceList(reports))),
		section("Requests", requests.draw()),
	}}, nil
}

// addRequest adds a request of a claim, or each of its alternatives.
func addRequest(t *grid, request resourceapi.DeviceRequest) {
	add := func(name, class string, mode resourceapi.DeviceAllocationMode, count int64, capacity *resourceapi.CapacityRequirements, selectors []resourceapi.DeviceSelector) {
		number := fmt.Sprint(count)
		if mode == resourceapi.DeviceAllocationModeAll {
			number = "all"
		}
		var amounts, expressions []string
		if capacity != nil {
			for name, amount := range capacity.Requests {
				amounts = append(amounts, fmt.Sprintf("%s %s", name, amount.String()))
			}
			slices.Sort(amounts)
		}
		for _, s := range selectors {
			if s.CEL != nil {
				expressions = append(expressions, s.CEL.Expression)
			}
		}
		t.add(name, markup.Text(name), markup.Text(class), markup.Text(number), markup.Text(orDash(strings.Join(amounts, ", "))),
			markup.E("code", markup.Text(orDash(strings.Join(expressions, " && ")))))
	}
	if r := request.Exactly; r != nil {
		add(request.Name, r.DeviceClassName, r.AllocationMode, r.Count, r.Capacity, r.Selectors)
	}
	for _, r := range request.FirstAvailable {
		add(request.Name+"/"+r.Name, r.DeviceClassName, r.AllocationMode, r.Count, r.Capacity, r.Selectors)
	}
}

// waitingPods returns the pods with claims or extended resources that have not started, in
// order of their names.
func waitingPods(r *reading) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range r.objects.Pods {
		if pod.Status.Phase == corev1.PodPending && (len(pod.Spec.ResourceClaims) > 0 || extendedClaim(r.Fleet, r.objects, pod) != nil) {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

func podsPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	var found []*corev1.Pod
	for _, pod := range waitingPods(r) {
		if matches(q, pod.Namespace+"/"+pod.Name, pod.Spec.NodeName, schedulerMessage(pod)) {
			found = append(found, pod)
		}
	}
	shown, parts := cut(q, found, "Pods")
	t := grid{name: "Waiting pods", heading: []string{"Pod", "Node", "Scheduler"}, empty: "No pod with claims waits."}
	for _, pod := range shown {
		t.add(pod.Namespace+"/"+pod.Name, link(pod.Namespace+"/"+pod.Name, "pods", pod.Namespace, pod.Name), markup.Text(orDash(pod.Spec.NodeName)), markup.Text(orDash(schedulerMessage(pod))))
	}
	return page{"Waiting pods", markup.Parts{
		paragraph("hint", "Pods with claims or extended resources of the driver that have not started. Each page has the reason, and what to change."),
		filterForm(q, "Pods with a name, node or message"), t.draw(), parts,
	}}, nil
}

func schedulerMessage(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

func namespacesPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(usageItems(r.nodes, r.at), func(u usageItem) bool { return !matches(q, u.Namespace) })
	shown, parts := cut(q, found, "Namespaces")
	t := grid{name: "Namespaces", heading: []string{"Namespace", "Claims", "GPUs", "Memory", "Compute", "Slots", "GPU hours"}, empty: "No namespace holds a device."}
	for _, u := range shown {
		t.add(u.Namespace, markup.E("a", markup.Attr("href", "/claims?q="+url.QueryEscape(u.Namespace+"/")), markup.Text(u.Namespace)), markup.Text(fmt.Sprint(u.Claims)), markup.Text(fmt.Sprintf("%.1f", u.GPUs)),
			markup.Text(gibibytes(u.Memory)), markup.Text(fmt.Sprintf("%d%%", u.Compute)), markup.Text(fmt.Sprint(u.Slots)), markup.Text(fmt.Sprintf("%.1f", u.Hours)))
	}
	return page{"Namespaces", markup.Parts{
		paragraph("hint", "Promised to the claims of each namespace now, not used by programs. GPUs adds up the parts of each GPU's memory."),
		filterForm(q, "Namespaces with a name"), t.draw(), parts,
	}}, nil
}

// explained is an explanation, or the reason why there is none.
type explained struct {
	explanation
	err error
	// until is the time up to which it is used for later readings too.
	until time.Time
}

func (s *site) podPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	return s.explanationPage(ctx, r, namespace, "pod/"+name, breadcrumbs(link("Waiting", "pods"), markup.Text(namespace+"/"+name)))
}

func (s *site) whyPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	return s.explanationPage(ctx, r, namespace, "claim/"+name, breadcrumbs(link("Claims", "claims"), link(namespace+"/"+name, "claims", namespace, name), markup.Text("Why it waits")))
}

// pageLimit bounds the search for a page. Its visitor waits for it, and so do the other pages.
const pageLimit = 10 * time.Second

// nodesExplained is the number of nodes that are explained device by device.
const nodesExplained = 5

func (s *site) explanationPage(ctx context.Context, r *reading, namespace, name string, path markup.Part) (page, error) {
	e, err := s.explain(ctx, r, namespace, name)
	if err != nil {
		return page{}, err
	}
	main := markup.Parts{path}
	if len(e.Advice) > 0 {
		main = append(main, markup.E("section", markup.Attr("class", "advice"), markup.E("h2", markup.Text("What to do")), sentenceList(e.Advice)))
	}
	if len(e.Facts) > 0 {
		main = append(main, section("Facts", sentenceList(e.Facts)))
	}
	if len(e.Fits) > 0 {
		main = append(main, section("It fits", paragraph("", "The devices are free on "+list(e.Fits)+".")))
	}
	for _, miss := range e.Misses {
		parts := markup.Parts{paragraph("", capital(miss.Missing))}
		for _, request := range miss.Requests {
			t := grid{name: "Devices for the request " + request.Request, heading: []string{"Device", "Reason"}, empty: "No device of the class misses a condition by itself."}
			for _, d := range request.Devices {
				t.add(d.Device, deviceLink(r, miss.Node, d.Device), markup.Text(capital(strings.Join(d.Reasons, "; "))))
			}
			parts = append(parts, markup.E("h3", markup.Text(fmt.Sprintf("Claim %s, request %s: %d of %d devices", request.Claim, request.Request, request.Meeting, request.Wanted))), t.draw())
			if request.OtherClasses > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d devices are not of the class.", request.OtherClasses)))
			}
			if request.OtherDevices > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d further devices do not meet it either.", request.OtherDevices)))
			}
			if request.NotExamined > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d devices were not examined.", request.NotExamined)))
			}
		}
		main = append(main, section("Node "+miss.Node, parts))
	}
	if len(e.NotExamined) > 0 {
		main = append(main, paragraph("hint", "Not examined: "+list(e.NotExamined)+"."))
	}
	if e.Other > 0 {
		main = append(main, paragraph("hint", fmt.Sprintf("%d further nodes do not fit either.", e.Other)))
	}
	return page{capital(e.Subject), main}, nil
}

// explain returns the explanation of a pod or claim, which all pages share. In a large cluster
// one takes a processor for seconds, so one is made at a time, and it is used for a multiple of
// the time that it takes.
func (s *site) explain(ctx context.Context, r *reading, namespace, name string) (explanation, error) {
	for _, sentence := range r.refused {
		if strings.Contains(sentence, classList) {
			return explanation{}, fmt.Errorf("explain %s: %w: list %s", name, gpu.ErrPermission, classList)
		}
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return explanation{}, ctx.Err()
	}
	begin := time.Now()
	maps.DeleteFunc(s.explained, func(_ explanationKey, e explained) bool { return begin.After(e.until) })
	key := explanationKey{namespace, name}
	if found, ok := s.explained[key]; ok {
		return found.explanation, found.err
	}
	e, pod, err := explain(ctx, r.NewSearch(pageLimit), r.objects, namespace, name, nodesExplained)
	if err == nil && pod != nil {
		err = e.addEvents(ctx, r.client, pod)
	}
	if ctx.Err() == nil {
		now := time.Now()
		s.explained[key] = explained{e, err, now.Add(max(s.readings.fresh, idleRatio*now.Sub(begin)))}
	}
	return e, err
}
