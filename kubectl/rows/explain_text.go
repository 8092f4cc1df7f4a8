// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Section is a heading and the sentences below it. A line that belongs to the one before begins
// with spaces.
type Section struct {
	Heading string
	Lines   []string
}

// Sections returns the explanation as commands print it and pages show it: the causes, the remedies,
// and then the details. The remedies for administrators are among them on request, or if the user
// is one.
func (e Explanation) Sections(repairs bool) []Section {
	first := Section{Heading: e.Subject, Lines: slices.Clone(e.Causes)}
	if e.State != "" {
		first.Heading += ": " + string(e.State)
	}
	if e.Unread != "" {
		first.Lines = append(first.Lines, e.Unread)
	}
	all := []Section{first}
	add := func(heading string, lines []string) {
		if len(lines) > 0 {
			all = append(all, Section{heading, lines})
		}
	}
	add("What to do", e.Advice)
	if repairs || e.Repairer {
		add("Repair, by the administrator of the node", e.Repairs)
	}
	add("Containers", e.containerLines())
	add("Facts", e.Facts)
	sentence := func(format string, args ...any) { all = append(all, Section{Heading: fmt.Sprintf(format, args...)}) }
	if text := e.FitSentence(); text != "" {
		all = append(all, Section{Heading: text})
	}
	for _, miss := range e.Misses {
		all = append(all, Section{fmt.Sprintf("Node %s: %s", miss.Node, miss.Missing), miss.lines()})
	}
	if e.Other > 0 {
		sentence("%s not fit either (--nodes)", fleet.NumberVerb(e.Other, "further node", "does", "do"))
	}
	if len(e.NotExamined) > 0 {
		sentence("Not examined (--limit): %s", List(e.NotExamined))
	}
	nodes := map[string][]string{}
	for _, excluded := range e.Excluded {
		reasons := strings.Join(excluded.Reasons, "; ")
		nodes[reasons] = append(nodes[reasons], excluded.Node)
	}
	for _, reasons := range slices.Sorted(maps.Keys(nodes)) {
		sentence("Not on %s: %s", List(nodes[reasons]), reasons)
	}
	return all
}

// FitSentence returns where the claims fit; "" if they fit nowhere.
func (e Explanation) FitSentence() string {
	switch {
	case len(e.Fits) > 0 && e.Partial:
		return fmt.Sprintf("The devices may be free on %s, or claims that you may not read hold them.", List(e.Fits))
	case len(e.Fits) > 0:
		return fmt.Sprintf("The devices are free on %s.", List(e.Fits))
	default:
		return ""
	}
}

func (e Explanation) containerLines() []string {
	var lines []string
	for _, c := range e.Containers {
		lines = append(lines, fmt.Sprintf("%s: %s of node %s, claim %s", OrDash(c.Container), c.Device, c.Node, c.Claim))
		for _, limit := range c.Limits {
			lines = append(lines, "  "+limit)
		}
		if c.Use.Memory != nil {
			lines = append(lines, fmt.Sprintf("  uses %s of memory now", Gibibytes(*c.Use.Memory)))
		}
		if c.SM != nil {
			lines = append(lines, fmt.Sprintf("  runs kernels for %.0f%% of the time", *c.SM))
		}
	}
	return lines
}

// lines returns why the claims do not fit on the node. GPUs often have the same reasons.
func (m Miss) lines() []string {
	var lines []string
	for _, r := range m.Requests {
		lines = append(lines, fmt.Sprintf("claim %s, request %s: %d of %s", r.Claim, r.Request, r.Meeting, fleet.Number(int(r.Wanted), "device")))
		devices, order := map[string][]string{}, []string{}
		for _, d := range r.Devices {
			reasons := strings.Join(d.Reasons, "; ")
			if devices[reasons] == nil {
				order = append(order, reasons)
			}
			devices[reasons] = append(devices[reasons], d.Device)
		}
		for _, reasons := range order {
			lines = append(lines, fmt.Sprintf("  %s: %s", List(devices[reasons]), reasons))
		}
		for _, left := range []struct {
			n              int
			noun, one, all string
		}{
			{r.OtherClasses, "device", "is not of the class", "are not of the class"},
			{r.OtherDevices, "further device", "does not meet it either", "do not meet it either"},
			{r.NotExamined, "device", "was not examined (--limit)", "were not examined (--limit)"},
		} {
			if left.n > 0 {
				lines = append(lines, "  "+fleet.NumberVerb(left.n, left.noun, left.one, left.all))
			}
		}
	}
	return lines
}
