// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// documentLink returns a link to a section of a document; text only if it has none.
func documentLink(text, section string) markup.Part {
	if section == "" {
		return markup.Text(text)
	}
	return markup.E("a", markup.Attr("href", section), markup.Attr("rel", "noreferrer"), markup.Text(text))
}

// healthClass returns the class of a state of health in the style sheet.
func healthClass(state rows.HealthState) string {
	switch state {
	case rows.HealthOK:
		return "ok"
	case rows.HealthTainted:
		return "tainted"
	case rows.HealthUnknown, rows.HealthNotPublished:
	}
	return "unknown"
}

// signOf returns the sign of a state of health, which differs by more than its color.
func signOf(state rows.HealthState) string {
	switch healthClass(state) {
	case "ok":
		return ""
	case "tainted":
		return "⚠ "
	default:
		return "? "
	}
}

// health returns the health of GPUs in the words of the commands, each once. The first word of a
// taint is a link to the section about it.
func (r *reading) health(gpus ...rows.GPU) markup.Part {
	var items markup.Parts
	var seen []string
	for _, g := range gpus {
		h := g.Health
		if text := h.Text(r.at); h.State != rows.HealthOK && !slices.Contains(seen, text) {
			seen = append(seen, text)
			items = append(items, markup.E("li", r.healthItem(h)))
		}
	}
	if items == nil && len(gpus) > 0 {
		return markup.E("span", markup.Attr("class", "ok"), markup.Text(string(rows.HealthOK)))
	}
	return listOrDash(items)
}

// deviceHealth returns the health of the GPU of a device.
func (r *reading) deviceHealth(node, device string) markup.Part {
	var found []rows.GPU
	for _, n := range r.rows {
		for _, g := range n.GPUs {
			if n.Name == node && g.Name == r.places[node][device] {
				found = append(found, g)
			}
		}
	}
	return r.health(found...)
}

func (r *reading) healthItem(h rows.Health) markup.Part {
	parts := markup.Parts{markup.Attr("class", healthClass(h.State)), markup.Text(signOf(h.State))}
	for _, p := range h.Parts(r.at) {
		if p.Reason != nil && p.Reason.Section() != "" {
			parts = append(parts, documentLink(p.Text, p.Reason.Section()))
		} else {
			parts = append(parts, breakable(p.Text))
		}
	}
	return markup.E("span", parts...)
}
