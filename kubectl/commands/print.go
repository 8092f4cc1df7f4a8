// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// print writes the table, or items in another format.
func (o *options) print(items any, t rows.Table) error {
	if !o.isTable() {
		return o.printValue(items)
	}
	return writeTable(o.Out, t, o.output == "wide", o.width())
}

const (
	// leastTab is the least width of a column with its gap, as kubectl prints it.
	leastTab = 6
	// columnGap is the number of spaces between the columns of a table.
	columnGap = 3
)

// writeTable writes a table for a terminal of a width; 0 for no limit. Its cells are each in one
// line.
func writeTable(w io.Writer, t rows.Table, wide bool, width int) error {
	heading := t.Heading
	if wide {
		heading = slices.Concat(heading, t.Wide)
	}
	var lines [][]string
	for _, row := range append([][]string{heading}, t.Rows...) {
		var cells []string
		for _, cell := range row[:len(heading)] {
			// Messages of others can have several lines.
			cells = append(cells, plain.Line(strings.Join(strings.FieldsFunc(cell, func(r rune) bool { return r == '\n' || r == '\r' }), " ")))
		}
		lines = append(lines, cells)
	}
	fit(lines, width)
	writer := tabwriter.NewWriter(w, leastTab, 0, columnGap, ' ', 0)
	for _, cells := range lines {
		if _, err := fmt.Fprintln(writer, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return writer.Flush()
}

// terminalWidth returns the width of a terminal; 0 if w is another file.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
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

// fit removes columns until the lines have at most width characters. The first row is the heading.
func fit(lines [][]string, width int) {
	for _, heading := range dropped() {
		if width <= 0 || isWithin(lines, width) {
			return
		}
		if i := slices.Index(lines[0], heading); i >= 0 {
			for j := range lines {
				lines[j] = slices.Delete(lines[j], i, i+1)
			}
		}
	}
}

// isWithin reports whether the lines of a table have at most width characters.
func isWithin(lines [][]string, width int) bool {
	sum := -columnGap
	for i := range lines[0] {
		widest := 0
		for _, row := range lines {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		sum += widest + columnGap
	}
	return sum <= width
}
