// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// textOf returns the explanation for printing: the causes, the remedies, and then the details.
// A message cannot add lines to it. The remedies for administrators are printed on request, or
// if the user is one.
func textOf(e rows.Explanation, wide bool) string {
	var b strings.Builder
	line := func(format string, texts ...any) {
		for i, text := range texts {
			if s, ok := text.(string); ok {
				texts[i] = plain.Line(s)
			}
		}
		fmt.Fprintf(&b, format+"\n", texts...)
	}
	list := func(heading string, texts []string) {
		if len(texts) > 0 {
			line("\n%s", heading)
		}
		for _, text := range texts {
			line("  %s", text)
		}
	}
	if e.State == "" {
		line("%s", e.Subject)
	} else {
		line("%s: %s", e.Subject, string(e.State))
	}
	for _, cause := range e.Causes {
		line("  %s", cause)
	}
	if e.Unread != "" {
		line("  %s", e.Unread)
	}
	list("What to do", e.Advice)
	if wide || e.Repairer {
		list("Repair, by the administrator of the node", e.Repairs)
	}
	if len(e.Containers) > 0 {
		line("\nContainers")
	}
	for _, c := range e.Containers {
		line("  %s: %s of node %s, claim %s", rows.OrDash(c.Container), c.Device, c.Node, c.Claim)
		for _, limit := range c.Limits {
			line("    %s", limit)
		}
		if c.Use.Memory != nil {
			line("    uses %s of memory now", rows.Gibibytes(*c.Use.Memory))
		}
		if c.SM != nil {
			line("    runs kernels for %.0f%% of the time", *c.SM)
		}
	}
	list("Facts", e.Facts)
	switch {
	case len(e.Fits) > 0 && e.Partial:
		line("\nThe devices may be free on %s, or claims that you may not read hold them.", rows.List(e.Fits))
	case len(e.Fits) > 0:
		line("\nThe devices are free on %s.", rows.List(e.Fits))
	}
	writeNodes(line, e)
	return b.String()
}

// writeNodes writes the nodes on which claims do not fit.
func writeNodes(line func(format string, texts ...any), e rows.Explanation) {
	for _, miss := range e.Misses {
		line("\nNode %s: %s", miss.Node, miss.Missing)
		for _, r := range miss.Requests {
			line("  claim %s, request %s: %d of %s", r.Claim, r.Request, r.Meeting, fleet.Number(int(r.Wanted), "device"))
			// GPUs often have the same reasons.
			devices, order := map[string][]string{}, []string{}
			for _, d := range r.Devices {
				reasons := strings.Join(d.Reasons, "; ")
				if devices[reasons] == nil {
					order = append(order, reasons)
				}
				devices[reasons] = append(devices[reasons], d.Device)
			}
			for _, reasons := range order {
				line("    %s: %s", rows.List(devices[reasons]), reasons)
			}
			if r.OtherClasses > 0 {
				line("    %s not of the class", fleet.NumberVerb(r.OtherClasses, "device", "is", "are"))
			}
			if r.OtherDevices > 0 {
				line("    %s not meet it either", fleet.NumberVerb(r.OtherDevices, "further device", "does", "do"))
			}
			if r.NotExamined > 0 {
				line("    %s not examined (--limit)", fleet.NumberVerb(r.NotExamined, "device", "was", "were"))
			}
		}
	}
	if e.Other > 0 {
		line("\n%s not fit either (--nodes)", fleet.NumberVerb(e.Other, "further node", "does", "do"))
	}
	if len(e.NotExamined) > 0 {
		line("\nNot examined (--limit): %s", rows.List(e.NotExamined))
	}
	for _, sentence := range e.Elsewhere() {
		line("\n%s", sentence)
	}
}
