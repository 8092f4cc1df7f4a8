// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
	at := func(p Place) *column {
		return find(&columns, func(c column) bool { return c.numa == p.NUMANode }, column{numa: p.NUMANode})
	}
	in := func(c *column, p Place) *root {
		return find(&c.roots, func(r root) bool { return r.name == p.PCIeRoot }, root{name: p.PCIeRoot})
	}
	for _, g := range n.GPUs {
		c := at(g.Place)
		r := in(c, g.Place)
		r.gpus = append(r.gpus, g)
		numaOf[g.Place.PCIeRoot] = g.Place.NUMANode
		if domain := g.Place.NVLinkDomain; domain != "" {
			find(&c.lanes, func(l rail) bool { return l.domain == domain }, rail{domain: domain})
		}
	}
	for _, d := range n.Others {
		if d.Place.NUMANode == "" {
			d.Place.NUMANode = numaOf[d.Place.PCIeRoot]
		}
		c := at(d.Place)
		others := &c.others
		if d.Place.PCIeRoot != "" {
			others = &in(c, d.Place).others
		}
		*others = append(*others, d)
	}
	for _, c := range columns {
		slices.SortStableFunc(c.roots, func(a, b root) int { return strings.Compare(a.name, b.name) })
	}
	slices.SortFunc(columns, func(a, b column) int { return compareNUMA(a.numa, b.numa) })
	return columns
}

// find returns the first item that matches. It appends added if there is none.
func find[T any](all *[]T, matches func(T) bool, added T) *T {
	i := slices.IndexFunc(*all, matches)
	if i < 0 {
		i = len(*all)
		*all = append(*all, added)
	}
	return &(*all)[i]
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
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
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
			b := find(&bars, func(b bar) bool { return b.domain == l.domain }, bar{domain: l.domain, class: fmt.Sprintf("link link-%d", len(bars)%linkColors), first: i})
			b.last = i
			l.class = b.class
			for _, r := range columns[i].roots {
				for _, g := range r.gpus {
					if g.Place.NVLinkDomain == l.domain {
						b.gpus++
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
