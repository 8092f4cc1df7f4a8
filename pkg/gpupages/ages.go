// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
)

// age returns the time from since to the reading, as kubectl writes it. It returns "-" if since
// is not known.
func (r *reading) age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, r.at.Sub(since)))
}

// ageCell is an age with its time for programs and as a hint.
func (r *reading) ageCell(since time.Time) markup.Part {
	if since.IsZero() {
		return markup.Text("-")
	}
	exact := since.UTC().Format(time.RFC3339)
	return markup.E("time", markup.Attr("datetime", exact), markup.Attr("title", exact), markup.Text(r.age(since)))
}

// ageColumn is a column of ages. Ascending is the youngest first, and unknown ages are last.
func ageColumn[T any](r *reading, heading string, since func(T) time.Time) column[T] {
	return column[T]{heading, func(a, b T) int { return since(b).Compare(since(a)) }, func(row T) markup.Part { return r.ageCell(since(row)) }}
}

// taint keeps new pods away from a GPU.
type taint struct {
	// text is key=value:effect.
	text string
	// since is zero if the time is not known.
	since time.Time
}

// taintsOf returns the taints of the GPUs' devices that keep pods away, each once.
func taintsOf(gpus ...fleet.GPU) []taint {
	var all []taint
	for _, g := range gpus {
		for _, d := range g.Devices {
			if d.Published == nil {
				continue
			}
			for _, t := range d.Published.Taints {
				text := fleet.TaintText(t)
				if t.Effect == resourceapi.DeviceTaintEffectNone || slices.ContainsFunc(all, func(other taint) bool { return other.text == text }) {
					continue
				}
				found := taint{text: text}
				if t.TimeAdded != nil {
					found.since = t.TimeAdded.Time
				}
				all = append(all, found)
			}
		}
	}
	return all
}

// health returns the badge of the health of GPUs, with the age of each taint.
func (r *reading) health(gpus ...fleet.GPU) markup.Part {
	taints := taintsOf(gpus...)
	if len(taints) == 0 {
		return markup.E("span", markup.Attr("class", "ok"), markup.Text("ok"))
	}
	var items markup.Parts
	for _, t := range taints {
		item := markup.Parts{markup.E("span", markup.Attr("class", "tainted"), breakable("⚠ "+t.text))}
		if !t.since.IsZero() {
			item = append(item, markup.Text(" "), r.ageCell(t.since))
		}
		items = append(items, markup.E("li", item))
	}
	return listOrDash(items)
}
