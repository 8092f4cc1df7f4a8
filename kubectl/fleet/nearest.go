// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strings"
)

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

// Distance returns the number of letters to insert, remove or replace to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
