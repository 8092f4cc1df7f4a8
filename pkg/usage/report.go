// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/usage/report"
)

type (
	// Report is the use of a node by its claims.
	Report = report.Report
	// Row is about a device of a claim, or the use of it by a container.
	Row = report.Row
	// Labels name the object of a row.
	Labels = report.Labels
)

func compareLabels(l, other Labels) int {
	rank := func(l Labels) int {
		if l.OfContainer() {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(rank(l), rank(other)),
		cmp.Compare(l.Namespace, other.Namespace), cmp.Compare(l.Claim, other.Claim), cmp.Compare(l.Device, other.Device),
		cmp.Compare(l.Pod, other.Pod), cmp.Compare(l.Container, other.Container),
		cmp.Compare(l.UUID, other.UUID), cmp.Compare(l.Enforcement, other.Enforcement),
	)
}

// rows are the rows of a report. Whatever has the same labels is one row: the shares that a
// claim has of one device, and a container that is restarted while its processes end.
type rows map[Labels]*Row

func (r rows) at(l Labels) *Row {
	if r[l] == nil {
		r[l] = &Row{Labels: l}
	}
	return r[l]
}

func (r rows) report() Report {
	all := make([]Row, 0, len(r))
	for _, row := range r {
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b Row) int { return compareLabels(a.Labels, b.Labels) })
	most := min(len(all), report.MaxRows)
	return Report{Rows: all[:most:most], Omitted: len(all) - most}
}

// add adds to a value that may not be known yet.
func add[T uint64 | float64](to **T, value T) {
	if *to == nil {
		*to = new(T)
	}
	**to += value
}
