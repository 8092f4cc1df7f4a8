// SPDX-License-Identifier: Apache-2.0

// Package picture draws the GPUs of a node as SVG: NUMA nodes as columns, in these PCIe roots
// with their GPUs and the devices of other drivers, NVLink domains as bars, and the claims of
// each device. It is a pure function of its input.
package picture

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
)

// Node is the contents of a picture.
type Node struct {
	Name string
	// GPUs and other devices, in the order in which they are drawn.
	GPUs   []GPU
	Others []Device
	// Link returns the address of a GPU's page; nil if there are no pages.
	Link func(gpu string) string
}

// Place is where a device is in the node; empty if it is not known.
type Place struct{ NVLinkDomain, PCIeRoot, NUMANode string }

// GPU is a GPU of the node.
type GPU struct {
	Name, Model, Mode string
	Place             Place
	// Memory is the promised memory as text, and Part the part of all memory, from 0 to 1.
	Memory string
	Part   float64
	// Taints and Claims as text.
	Taints, Claims []string
}

// Device is a device of another driver, such as a NIC.
type Device struct {
	Driver, Name string
	Place        Place
	Claims       []string
}

// Sizes in pixels.
const (
	margin    = 16 // around the picture
	pad       = 10 // inside boxes
	gap       = 20 // between NUMA nodes
	lane      = 14 // between NVLink domains in a NUMA node
	boxWidth  = 244
	textWidth = boxWidth - 2*pad
	line      = 16
	heading   = 26
	barHeight = 22

	rootWidth = boxWidth + 2*pad
)

// Limits of the drawn boxes. Their titles, which browsers show and read out, have
// the rest.
const (
	mostClaims = 3
	mostOthers = 4
	// linkColors is the number of classes link-0, link-1 and so on in the style.
	linkColors = 4
)

// Style returns the style sheet of the picture.
func Style() string { return style }

//go:embed picture.css
var style string

// Draw returns the picture. A picture that stands for itself has its style sheet in it; that
// of a page is in a page with the style sheet.
func Draw(n Node, inPage bool) *markup.Element {
	columns := arrange(n)
	bars, rows := domains(columns)
	top := margin + heading + rows*(barHeight+6) + 6
	width, height := margin, top
	var boxes, links, devices markup.Parts
	for i := range columns {
		c := &columns[i]
		c.x = width
		for j := range c.lanes {
			c.lanes[j].x = c.x + pad + 6 + j*lane
		}
		b, l, d, bottom := c.draw(n, top)
		boxes, links, devices = append(boxes, b...), append(links, l...), append(devices, d...)
		width += c.width() + gap
		height = max(height, bottom)
	}
	width = max(width-gap+margin, 360)
	height += margin
	parts := markup.Parts{
		markup.Attr("xmlns", "http://www.w3.org/2000/svg"), markup.Attr("class", "topology"), markup.Attr("role", "group"),
		number("width", width), number("height", height), markup.Attr("viewBox", fmt.Sprintf("0 0 %d %d", width, height)),
		markup.Attr("aria-label", "GPUs of node "+n.Name),
	}
	if !inPage {
		parts = append(parts, markup.E("style", markup.Text(style)))
	}
	parts = append(
		parts,
		markup.E("title", markup.Text("GPUs of node "+n.Name)),
		markup.E("desc", markup.Text(describe(columns, bars))),
		rect("ground", 0, 0, width, height),
		label("name", margin, margin+14, fit("Node "+n.Name, width-2*margin, 8)),
		boxes,
	)
	for _, b := range bars {
		parts = append(parts, b.draw(columns, margin+heading, top))
	}
	return markup.E("svg", append(parts, links, devices)...)
}

// column is a NUMA node.
type column struct {
	numa  string
	x     int
	roots []root
	// others are devices of the NUMA node without a PCIe root, such as CPUs.
	others []Device
	lanes  []rail
}

type root struct {
	name   string
	gpus   []GPU
	others []Device
}

// rail is the vertical line of a NVLink domain in a column.
type rail struct {
	domain string
	class  string
	x, y   int
}

// arrange puts devices in NUMA nodes and PCIe roots. A device of another driver that does not
// publish its NUMA node is in the one of its PCIe root.
func arrange(n Node) []column {
	var columns []column
	numaOf := map[string]string{}
	at := func(p Place) (*column, *root) {
		i := slices.IndexFunc(columns, func(c column) bool { return c.numa == p.NUMANode })
		if i < 0 {
			i = len(columns)
			columns = append(columns, column{numa: p.NUMANode})
		}
		c := &columns[i]
		j := slices.IndexFunc(c.roots, func(r root) bool { return r.name == p.PCIeRoot })
		if j < 0 {
			j = len(c.roots)
			c.roots = append(c.roots, root{name: p.PCIeRoot})
		}
		return c, &c.roots[j]
	}
	for _, g := range n.GPUs {
		c, r := at(g.Place)
		r.gpus = append(r.gpus, g)
		numaOf[g.Place.PCIeRoot] = g.Place.NUMANode
		known := slices.ContainsFunc(c.lanes, func(l rail) bool { return l.domain == g.Place.NVLinkDomain })
		if g.Place.NVLinkDomain != "" && !known {
			c.lanes = append(c.lanes, rail{domain: g.Place.NVLinkDomain})
		}
	}
	for _, d := range n.Others {
		if d.Place.NUMANode == "" {
			d.Place.NUMANode = numaOf[d.Place.PCIeRoot]
		}
		if d.Place.PCIeRoot != "" {
			_, r := at(d.Place)
			r.others = append(r.others, d)
			continue
		}
		i := slices.IndexFunc(columns, func(c column) bool { return c.numa == d.Place.NUMANode })
		if i < 0 {
			i = len(columns)
			columns = append(columns, column{numa: d.Place.NUMANode})
		}
		columns[i].others = append(columns[i].others, d)
	}
	for _, c := range columns {
		slices.SortStableFunc(c.roots, func(a, b root) int { return strings.Compare(a.name, b.name) })
	}
	slices.SortFunc(columns, func(a, b column) int { return compareNUMA(a.numa, b.numa) })
	return columns
}

// compareNUMA orders NUMA nodes by number, the unknown one last.
func compareNUMA(a, b string) int {
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return 1 << 32
		}
		return n
	}
	if x, y := number(a), number(b); x != y {
		return int(x) - int(y)
	}
	return strings.Compare(a, b)
}

// bar is the horizontal bar of a NVLink domain above its columns, in one of the rows.
type bar struct {
	domain, class    string
	first, last, row int
	gpus             int
}

// domains returns the bars of the NVLink domains and the number of rows. Bars in a row do not
// overlap. It sets the classes of the columns' rails.
func domains(columns []column) ([]bar, int) {
	var bars []bar
	for i := range columns {
		for j := range columns[i].lanes {
			l := &columns[i].lanes[j]
			k := slices.IndexFunc(bars, func(b bar) bool { return b.domain == l.domain })
			if k < 0 {
				k = len(bars)
				bars = append(bars, bar{domain: l.domain, class: fmt.Sprintf("link link-%d", k%linkColors), first: i})
			}
			bars[k].last = i
			l.class = bars[k].class
			for _, r := range columns[i].roots {
				for _, g := range r.gpus {
					if g.Place.NVLinkDomain == l.domain {
						bars[k].gpus++
					}
				}
			}
		}
	}
	var ends []int // the last column of each row
	for k := range bars {
		b := &bars[k]
		b.row = slices.IndexFunc(ends, func(end int) bool { return end < b.first })
		if b.row < 0 {
			b.row = len(ends)
			ends = append(ends, 0)
		}
		ends[b.row] = b.last
	}
	return bars, len(ends)
}

func (b bar) text() string { return fmt.Sprintf("NVLink domain %s: %d GPUs", b.domain, b.gpus) }

// draw returns the bar and its lines down to the columns.
func (b bar) draw(columns []column, y, bottom int) markup.Part {
	y += b.row * (barHeight + 6)
	x, end := columns[b.first].x, columns[b.last].x+columns[b.last].width()
	parts := markup.Parts{markup.Attr("class", b.class)}
	for _, c := range columns[b.first : b.last+1] {
		for _, l := range c.lanes {
			if l.domain == b.domain {
				parts = append(parts, path(l.x, y+barHeight, l.x, bottom))
			}
		}
	}
	return markup.E("g", append(
		parts, rect("bar", x, y, end-x, barHeight), label("on-bar", x+pad, y+15, fit(b.text(), end-x-2*pad, 7)),
	)...)
}

func (c *column) rails() int {
	if len(c.lanes) == 0 {
		return 0
	}
	return len(c.lanes)*lane + 4
}

func (c *column) width() int { return 2*pad + c.rails() + rootWidth }

func (c *column) title() string {
	if c.numa == "" {
		return "NUMA node not published"
	}
	return "NUMA node " + c.numa
}

func (r root) title() string {
	if r.name == "" {
		return "PCIe root not published"
	}
	return "PCIe root " + r.name
}

// draw returns the boxes of the column, the NVLinks and the devices, and the column's end.
func (c *column) draw(n Node, top int) (boxes, links, devices markup.Parts, bottom int) {
	x, y := c.x+pad+c.rails(), top+heading
	devicesOf := func(others []Device) {
		for i, d := range others {
			box, height := d.draw(x+pad, y)
			if i == mostOthers && len(others) > mostOthers+1 {
				box, height = more(others[i:], x+pad, y)
			}
			devices = append(devices, box)
			y += height + 6
			if i == mostOthers {
				return
			}
		}
	}
	devicesOf(c.others)
	for _, r := range c.roots {
		start := y
		y += heading
		for _, g := range r.gpus {
			box, height := g.draw(n, x+pad, y)
			devices = append(devices, box)
			for i := range c.lanes {
				if l := &c.lanes[i]; l.domain == g.Place.NVLinkDomain {
					l.y = y + height/2
					links = append(links, markup.E("g", markup.Attr("class", l.class), path(l.x, l.y, x+pad, l.y)))
				}
			}
			y += height + 6
		}
		devicesOf(r.others)
		y += pad - 6
		boxes = append(boxes, rect("root", x, start, rootWidth, y-start), label("place", x+pad, start+16, fit(r.title(), textWidth, 7)))
		y += pad
	}
	for _, l := range c.lanes {
		links = append(links, markup.E("g", markup.Attr("class", l.class), path(l.x, top, l.x, l.y)))
	}
	numa := markup.Parts{rect("numa", c.x, top, c.width(), y-top), label("place", x, top+16, fit(c.title(), rootWidth, 7))}
	return append(numa, boxes...), links, devices, y
}

func (g GPU) draw(n Node, x, y int) (markup.Part, int) {
	start := y
	y += 18
	var parts markup.Parts
	text := func(class, s string) {
		parts = append(parts, label(class, x+pad, y, fit(s, textWidth, 7)))
		y += line
	}
	text("name", g.Name)
	parts = append(parts, markup.E("text", markup.Attr("class", "mode"), number("x", x+boxWidth-pad), number("y", start+18), markup.Attr("text-anchor", "end"), markup.Text(fit(g.Mode, 80, 7))))
	if g.Model != "" {
		text("muted", g.Model)
	}
	parts = append(parts, rect("meter", x+pad, y-8, textWidth, 6), rect("promised", x+pad, y-8, int(min(max(g.Part, 0), 1)*textWidth+0.5), 6))
	y += 12
	text("muted", g.Memory)
	for _, taint := range g.Taints {
		text("taint", "⚠ "+taint)
	}
	drawn := len(g.Claims)
	if drawn > mostClaims+1 {
		drawn = mostClaims
	}
	for _, claim := range g.Claims[:drawn] {
		text("claim", claim)
	}
	if rest := len(g.Claims) - drawn; rest > 0 {
		text("claim", fmt.Sprintf("and %d more claims", rest))
	}
	height := y - start - 4
	class := "gpu " + g.Mode
	if len(g.Taints) > 0 {
		class += " tainted"
	}
	box := markup.E("g", markup.Attr("class", class), markup.E("title", markup.Text(g.title())), rect("box", x, start, boxWidth, height), parts)
	if n.Link == nil {
		return box, height
	}
	return markup.E("a", markup.Attr("href", n.Link(g.Name)), markup.Attr("aria-label", g.title()), box), height
}

func (g GPU) title() string {
	words := []string{"GPU " + g.Name}
	if g.Model != "" {
		words = append(words, g.Model)
	}
	words = append(words, g.Mode, g.Memory)
	words = append(words, g.Taints...)
	return strings.Join(words, ", ") + claims(g.Claims)
}

func claims(names []string) string {
	if len(names) == 0 {
		return "; no claims"
	}
	return "; claims: " + strings.Join(names, ", ")
}

func (d Device) draw(x, y int) (markup.Part, int) {
	parts := markup.Parts{label("other", x+pad, y+15, fit(d.Driver+" "+d.Name, textWidth, 6.5))}
	height := 22
	if len(d.Claims) > 0 {
		text := d.Claims[0]
		if more := len(d.Claims) - 1; more > 0 {
			text = fit(text, textWidth-70, 6.5) + fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, label("claim", x+pad, y+30, fit(text, textWidth, 6.5)))
		height = 38
	}
	return markup.E("g", markup.Attr("class", "device"), markup.E("title", markup.Text(d.title())), rect("box", x, y, boxWidth, height), parts), height
}

func (d Device) title() string {
	return fmt.Sprintf("device %s of %s", d.Name, d.Driver) + claims(d.Claims)
}

// more draws one box for devices for which there is no space.
func more(devices []Device, x, y int) (markup.Part, int) {
	var titles []string
	for _, d := range devices {
		titles = append(titles, d.title())
	}
	text := fmt.Sprintf("and %d more devices", len(devices))
	return markup.E("g", markup.Attr("class", "device"), markup.E("title", markup.Text(strings.Join(titles, "\n"))),
		rect("box", x, y, boxWidth, 22), label("other", x+pad, y+15, text)), 22
}

// describe returns the picture in words.
func describe(columns []column, bars []bar) string {
	var words []string
	for _, c := range columns {
		for _, r := range c.roots {
			var names []string
			for _, g := range r.gpus {
				names = append(names, g.Name)
			}
			for _, d := range r.others {
				names = append(names, d.Name)
			}
			words = append(words, fmt.Sprintf("%s, %s: %s.", c.title(), r.title(), strings.Join(names, ", ")))
		}
	}
	for _, b := range bars {
		words = append(words, b.text()+".")
	}
	return strings.Join(words, " ")
}

// fit shortens text to a width, at so many pixels a character.
func fit(text string, width int, character float64) string {
	runes := []rune(text)
	if most := int(float64(width) / character); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

func number(name string, n int) markup.Part { return markup.Attr(name, strconv.Itoa(n)) }

func rect(class string, x, y, width, height int) markup.Part {
	return markup.E("rect", markup.Attr("class", class), number("x", x), number("y", y), number("width", width), number("height", height))
}

func label(class string, x, y int, text string) markup.Part {
	return markup.E("text", markup.Attr("class", class), number("x", x), number("y", y), markup.Text(text))
}

func path(x1, y1, x2, y2 int) markup.Part {
	return markup.E("path", markup.Attr("d", fmt.Sprintf("M%d %dL%d %d", x1, y1, x2, y2)))
}
