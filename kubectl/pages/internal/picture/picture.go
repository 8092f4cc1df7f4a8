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

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
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
	// Health is empty if it is ok.
	Health string
	// Claims as text.
	Claims []string
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
	// leastWidth fits a phone.
	leastWidth = 340
)

// Limits of the drawn boxes. Their titles, which browsers show and read out, have
// the rest.
const (
	mostClaims = 3
	// mostLines holds the longest name of a claim with its namespace: 253 + 63 characters.
	mostLines  = 12
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
	return draw(n, "GPUs of node "+n.Name, columns, bars, rows, inPage)
}

// DrawNarrow returns a picture of each NUMA node, for a page as wide as a phone.
func DrawNarrow(n Node) []*markup.Element {
	columns := arrange(n)
	bars, _ := domains(columns)
	var all []*markup.Element
	for i := range columns {
		var own []bar
		for _, b := range bars {
			if slices.ContainsFunc(columns[i].lanes, func(l rail) bool { return l.domain == b.domain }) {
				b.first, b.last, b.row = 0, 0, len(own)
				own = append(own, b)
			}
		}
		all = append(all, draw(n, "GPUs of node "+n.Name+", "+columns[i].title(), columns[i:i+1], own, len(own), true))
	}
	return all
}

func draw(n Node, title string, columns []column, bars []bar, rows int, inPage bool) *markup.Element {
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
	width = max(width-gap+margin, leastWidth)
	height += margin
	parts := markup.Parts{
		markup.Attr("xmlns", "http://www.w3.org/2000/svg"), markup.Attr("class", "topology"), markup.Attr("role", "group"),
		number("width", width), number("height", height), markup.Attr("viewBox", fmt.Sprintf("0 0 %d %d", width, height)),
		markup.Attr("aria-label", title),
	}
	if !inPage {
		parts = append(parts, markup.E("style", markup.Text(style)))
	}
	parts = append(
		parts,
		markup.E("title", markup.Text(title)),
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

// fit shortens text to a width, at a number of pixels per character.
func fit(text string, width int, character float64) string {
	runes := []rune(text)
	if most := int(float64(width) / character); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// wrap breaks text into lines of a width, if it can after a separator of names.
func wrap(text string, width int, character float64) []string {
	runes, most := []rune(text), int(float64(width)/character)
	var lines []string
	for len(runes) > most {
		end := most
		for i := most; i > most/2; i-- {
			if strings.ContainsRune("/.-=:_ ", runes[i-1]) {
				end = i
				break
			}
		}
		lines, runes = append(lines, string(runes[:end])), runes[end:]
		if len(lines) == mostLines-1 {
			break
		}
	}
	return append(lines, fit(string(runes), width, character))
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
