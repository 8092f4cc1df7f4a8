// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// states are the states of findings, the most urgent first, with the plural for a number.
func states() []struct {
	state  doctor.State
	sign   string
	plural string
} {
	return []struct {
		state  doctor.State
		sign   string
		plural string
	}{{doctor.Problem, "✖", "Problems"}, {doctor.Warning, "⚠", "Warnings"}, {doctor.Unknown, "?", "Unknown"}, {doctor.OK, "✓", "OK"}}
}

func rank(state doctor.State) int {
	for i, s := range states() {
		if s.state == state {
			return i
		}
	}
	return len(states())
}

// stateBadge returns the badge of a state, which differs by more than its color.
func stateBadge(state doctor.State) markup.Part {
	sign := ""
	for _, s := range states() {
		if s.state == state {
			sign = s.sign
		}
	}
	return markup.E("span", markup.Attr("class", "badge "+string(state)), markup.E("span", markup.Attr("aria-hidden", "true"), markup.Text(sign+" ")), markup.Text(string(state)))
}

// findingsPage shows the findings of the doctor: those in the requested state, or all that are
// not ok.
func (s *Site) findingsPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	if r.inspection == nil && r.inspectionFailure == nil {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		r.inspection, r.inspectionFailure = s.inspections.get(limited)
	}
	switch {
	case r.inspection == nil && r.inspectionFailure != nil && !isTimeout(r.inspectionFailure):
		return page{}, r.inspectionFailure
	case r.inspection == nil:
		return page{"Findings", markup.Parts{paragraph("note", "The cluster is being checked. The findings appear here.")}}, nil
	}
	numbers := r.inspection.count()
	wanted := doctor.State(q.URL.Query().Get("state"))
	var sums facts
	for _, state := range states() {
		n := numbers[state.state]
		to := markup.E("a", markup.Attr("href", "/findings?state="+string(state.state)), markup.If(wanted == state.state, markup.Attr("aria-current", "true")), markup.Text(fmt.Sprint(n)))
		sums.add(state.plural, markup.E("span", markup.Attr("class", "count "+string(state.state)), to))
	}
	found := slices.DeleteFunc(slices.Clone(r.inspection.Findings), func(f doctor.Finding) bool {
		if wanted == "" && f.State == doctor.OK || wanted != "" && f.State != wanted {
			return true
		}
		return !matches(q, string(f.State), f.Code, f.Check, f.Object, f.Found, f.Meaning, f.Remedy)
	})
	findings := list[doctor.Finding]{
		name: "Findings", standard: "state", empty: "No check has found anything like this.",
		id: func(f doctor.Finding) string { return strings.Join([]string{f.Check, f.Code, f.Object, f.Found}, "/") },
		columns: []column[doctor.Finding]{
			{"State", by(func(f doctor.Finding) int { return rank(f.State) }), func(f doctor.Finding) markup.Part { return stateBadge(f.State) }},
			{"Code", by(doctor.Finding.Title), func(f doctor.Finding) markup.Part {
				return markup.E("span", markup.Attr("class", "word"), documentLink(f.Title(), f.Read))
			}},
			{"Object", by(func(f doctor.Finding) string { return f.Object }), func(f doctor.Finding) markup.Part {
				return markup.E("div", markup.Attr("class", "object"), r.linked("", f.Object))
			}},
			{"Found", nil, func(f doctor.Finding) markup.Part {
				return markup.E("div", markup.Attr("class", "prose"), r.linked("", capital(f.Found)))
			}},
			{"Meaning", nil, func(f doctor.Finding) markup.Part { return r.linked("", capital(rows.OrDash(f.Meaning))) }},
			{"Remedy", nil, func(f doctor.Finding) markup.Part { return r.linked("", capital(rows.OrDash(f.Remedy))) }},
		},
	}
	parts := markup.Parts{
		sums.draw("tiles"),
		paragraph("hint", "The checks of kubectl gpu doctor. Each finding has its meaning, the remedy, and a link to the section about its code; choose a number to see the findings in its state."),
	}
	if r.inspectionFailure != nil && !isTimeout(r.inspectionFailure) {
		parts = append(parts, paragraph("alert", "The last check failed: "+r.inspectionFailure.Error()+". These findings are older."))
	}
	for _, problem := range r.inspection.Problems[:min(mostLines, len(r.inspection.Problems))] {
		parts = append(parts, paragraph("note", problem))
	}
	return page{"Findings", append(parts, filterForm(q, "Findings with a text"), findings.draw(q, found),
		paragraph("hint", "Checked at "+clock(r.inspection.at)+"."))}, nil
}

// isTimeout reports whether a page has stopped waiting.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// urgent returns the number of problems and warnings, and the state of the most urgent one.
func (i *Inspection) urgent() (int, doctor.State) {
	numbers := i.count()
	state := doctor.Warning
	if numbers[doctor.Problem] > 0 {
		state = doctor.Problem
	}
	return numbers[doctor.Problem] + numbers[doctor.Warning], state
}
