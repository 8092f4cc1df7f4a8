// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strings"
)

// Device returns a device with its holders. Published is nil if the newest slices of its pool
// do not have it. The pool must be the one of a node, which has the node's name.
func (f *Fleet) Device(id DeviceID) Device {
	for _, slice := range newestPools(f.published[id.Pool])[pool{id.Driver, id.Pool}].slices {
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == id.Device {
				return f.device(id, &slice.Spec.Devices[i])
			}
		}
	}
	return f.device(id, nil)
}

// Nearest returns the names that a misspelt one may mean, the nearest first. Names are near if
// at most a third of their letters differ, or if one contains the other.
func Nearest(misspelt string, names []string) []string {
	const most = 3
	type candidate struct {
		name  string
		edits int
	}
	var all []candidate
	limit := (len(misspelt) + 2) / 3
	for _, name := range names {
		edits := Distance(strings.ToLower(misspelt), strings.ToLower(name))
		switch {
		case name == misspelt:
		case edits <= limit:
			all = append(all, candidate{name, edits})
		case len(misspelt) >= most && (strings.Contains(name, misspelt) || len(name) >= most && strings.Contains(misspelt, name)):
			all = append(all, candidate{name, limit + edits})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.edits, b.edits), cmp.Compare(a.name, b.name)) })
	var near []string
	for _, c := range all[:min(most, len(all))] {
		near = append(near, c.name)
	}
	return slices.Compact(near)
}
