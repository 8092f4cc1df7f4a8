// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

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
		for _, l := range wrap(s, textWidth, 7) {
			parts = append(parts, label(class, x+pad, y, l))
			y += line
		}
	}
	text("name", g.Name)
	parts = append(parts, markup.E("text", markup.Attr("class", "mode"), number("x", x+boxWidth-pad), number("y", start+18), markup.Attr("text-anchor", "end"), markup.Text(fit(g.Mode, 80, 7))))
	if g.Model != "" {
		text("muted", g.Model)
	}
	parts = append(parts, rect("meter", x+pad, y-8, textWidth, 6), rect("promised", x+pad, y-8, int(min(max(g.Part, 0), 1)*textWidth+0.5), 6))
	y += 12
	text("muted", g.Memory)
	if g.Health != "" {
		text("taint", "⚠ "+g.Health)
	}
	claims := g.Claims
	if rest := len(claims) - mostClaims; rest > 1 {
		claims = append(claims[:mostClaims:mostClaims], fmt.Sprintf("and %d more claims", rest))
	}
	for _, claim := range claims {
		text("claim", claim)
	}
	height := y - start - 4
	class := "gpu " + g.Mode
	if g.Health != "" {
		class += " tainted"
	}
	drawn := box(class, g.title(), x, start, height, parts)
	if n.Link == nil {
		return drawn, height
	}
	return markup.E("a", markup.Attr("href", n.Link(g.Name)), markup.Attr("aria-label", g.title()), drawn), height
}

func (g GPU) title() string {
	words := []string{"GPU " + g.Name}
	if g.Model != "" {
		words = append(words, g.Model)
	}
	words = append(words, g.Mode, g.Memory)
	if g.Health != "" {
		words = append(words, g.Health)
	}
	return strings.Join(words, ", ") + claims(g.Claims)
}

func claims(names []string) string {
	if len(names) == 0 {
		return "; no claims"
	}
	return "; claims: " + strings.Join(names, ", ")
}

func (d Device) draw(x, y int) (markup.Part, int) {
	var parts markup.Parts
	height := 7
	text := func(class, s string) {
		for _, l := range wrap(s, textWidth, 6.5) {
			height += 15
			parts = append(parts, label(class, x+pad, y+height-7, l))
		}
	}
	text("other", d.Driver+" "+d.Name)
	if len(d.Claims) > 0 {
		claim := d.Claims[0]
		if more := len(d.Claims) - 1; more > 0 {
			claim += fmt.Sprintf(" and %d more", more)
		}
		height++
		text("claim", claim)
	}
	return box("device", d.title(), x, y, height, parts), height
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
	return box("device", strings.Join(titles, "\n"), x, y, 22, label("other", x+pad, y+15, fmt.Sprintf("and %d more devices", len(devices)))), 22
}

func box(class, title string, x, y, height int, parts markup.Part) *markup.Element {
	return markup.E("g", markup.Attr("class", class), markup.E("title", markup.Text(title)), rect("box", x, y, boxWidth, height), parts)
}
