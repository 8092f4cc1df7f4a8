// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columnGap is the number of spaces between the columns of a table.
const columnGap = 3

// terminalWidth returns the width of a terminal; 0 if w is another file.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// dropped returns the headings of the columns that a narrow terminal leaves out, the first ones
// first. A file or another format has them.
func dropped() []string {
	return []string{"LIMITED BY", "CONTAINER", "COMPUTE", "MODEL", "CLAIMS", "PCIE ROOT", "CLAIM", "NAMESPACE"}
}

// fit removes the bars of amounts, and then columns, until the lines have at most width characters.
// The first row is the heading.
func fit(rows [][]string, width int) {
	if width <= 0 || isWithin(rows, width) {
		return
	}
	removeBars(rows)
	for _, heading := range dropped() {
		if isWithin(rows, width) {
			return
		}
		if i := slices.Index(rows[0], heading); i >= 0 {
			for j := range rows {
				rows[j] = slices.Delete(rows[j], i, i+1)
			}
		}
	}
}

// isWithin reports whether the lines of a table have at most width characters.
func isWithin(rows [][]string, width int) bool {
	sum := -columnGap
	for i := range rows[0] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		sum += widest + columnGap
	}
	return sum <= width
}

// removeBars removes the bars before amounts, and the prefix of GPUs that are headings.
func removeBars(rows [][]string) {
	for i, heading := range rows[0] {
		rows[0][i] = strings.TrimPrefix(heading, "gpu-")
	}
	for _, row := range rows {
		for i, cell := range row {
			if text := strings.TrimLeft(cell, bars); text != cell {
				row[i] = strings.TrimPrefix(text, " ")
			}
		}
	}
}
