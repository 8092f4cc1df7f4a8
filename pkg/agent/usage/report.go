// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
)

func compareLabels(l, other agentv1.Labels) int {
	rank := func(l agentv1.Labels) int {
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
type rows map[agentv1.Labels]*agentv1.Row

func (r rows) getOrAdd(l agentv1.Labels) *agentv1.Row {
	if r[l] == nil {
		r[l] = &agentv1.Row{Labels: l}
	}
	return r[l]
}

func (r rows) report() agentv1.Report {
	all := make([]agentv1.Row, 0, len(r))
	for _, row := range r {
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b agentv1.Row) int { return compareLabels(a.Labels, b.Labels) })
	most := min(len(all), agentv1.MaxRows)
	return agentv1.Report{Rows: all[:most:most], Omitted: len(all) - most}
}

// add adds to a value that may not be known yet.
func add[T uint64 | float64](to **T, value T) {
	if *to == nil {
		*to = new(T)
	}
	**to += value
}
