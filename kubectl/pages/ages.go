// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
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
