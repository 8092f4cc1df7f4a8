// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// order returns the indexes of the rows in order of a column; as they are without a name. It leaves
// out totals. The case of the name does not matter, and dashes may stand for spaces.
func (t table) order(column string) ([]int, error) {
	indexes := make([]int, len(t.rows)-t.totals)
	for i := range indexes {
		indexes[i] = i
	}
	if column == "" {
		return indexes, nil
	}
	headings := slices.Concat(t.heading, t.wide)
	at := slices.IndexFunc(headings, func(h string) bool {
		return strings.EqualFold(h, column) || strings.EqualFold(strings.ReplaceAll(h, " ", "-"), column)
	})
	if at < 0 {
		return nil, fmt.Errorf("--sort-by %s: %w: want a column: %s", column, gpu.ErrInvalid, strings.Join(headings, ", "))
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return compareCells(t.rows[a][at], t.rows[b][at]) })
	return indexes, nil
}

// reordered returns the table with its rows in another order, and then the totals.
func (t table) reordered(order []int) table {
	rows, bad := t.rows, t.bad
	totals := rows[len(rows)-t.totals:]
	t.rows, t.bad = nil, map[int]bool{}
	for i, from := range order {
		t.rows = append(t.rows, rows[from])
		t.bad[i] = bad[from]
	}
	t.rows = append(t.rows, totals...)
	return t
}

var (
	leadingNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?`)
	ratio         = regexp.MustCompile(`^([0-9]+)/([0-9]+)\b`)
)

// compareCells compares two cells of a column: numbers by their value, and then texts. Cells
// without a value are last.
func compareCells(a, b string) int {
	x, isNumber := cellNumber(a)
	y, isOther := cellNumber(b)
	switch {
	case a == "-" || b == "-":
		return cmp.Compare(rank(a), rank(b))
	case isNumber && isOther:
		return cmp.Compare(x, y)
	default:
		return strings.Compare(a, b)
	}
}

func rank(cell string) int {
	if cell == "-" {
		return 1
	}
	return 0
}

// cellNumber returns the number that a cell begins with, after a bar. Units such as "6/7 slices"
// are a percentage, as in the other cells of that column.
func cellNumber(cell string) (float64, bool) {
	cell = strings.TrimLeft(cell, bars+" ")
	if m := ratio.FindStringSubmatch(cell); m != nil {
		used, _ := strconv.ParseFloat(m[1], 64)
		total, _ := strconv.ParseFloat(m[2], 64)
		return 100 * used / max(total, 1), true
	}
	number, err := strconv.ParseFloat(leadingNumber.FindString(cell), 64)
	return number, err == nil
}
