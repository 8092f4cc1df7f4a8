// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
)

// table is rows of cells below a heading. Cells of wide columns are printed on request.
type table struct {
	heading, wide []string
	rows          [][]string
	// totals is the number of last rows that --sort-by leaves in place.
	totals int
	// bad has the indexes of rows with a problem, which a terminal shows in another colour.
	bad map[int]bool
}

// print writes the table, or items in another format.
func (o *options) print(items any, t table) error {
	if o.output != "" && o.output != "wide" {
		return o.printValue(items)
	}
	style := tableStyle{wide: o.output == "wide", colours: o.colours, width: o.width()}
	if o.colours {
		return t.write(o.terminal, style)
	}
	return t.write(o.Out, style)
}

// leastTab is the least width of a column with its gap, as kubectl prints it.
const leastTab = 6

// tableStyle is how a table is written.
type tableStyle struct {
	wide, colours bool
	// width is the width of the terminal; 0 for no limit.
	width int
}

// write writes the table. Its cells are each in one line, without escape sequences.
func (t table) write(w io.Writer, style tableStyle) error {
	columns := len(t.heading)
	heading := t.heading
	if style.wide {
		columns += len(t.wide)
		heading = append(heading[:len(heading):len(heading)], t.wide...)
	}
	var rows [][]string
	for _, row := range append([][]string{heading}, t.rows...) {
		var cells []string
		for _, cell := range row[:columns] {
			// Messages of others can have several lines.
			cells = append(cells, plain.Line(strings.Join(strings.FieldsFunc(cell, func(r rune) bool { return r == '\n' || r == '\r' }), " ")))
		}
		rows = append(rows, cells)
	}
	fit(rows, style.width)
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, leastTab, 0, columnGap, ' ', 0)
	for _, cells := range rows {
		if _, err := fmt.Fprintln(writer, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	if !style.colours {
		_, err := io.WriteString(w, text.String())
		return err
	}
	// Cells with colours would not be aligned.
	i := -2
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSuffix(line, "\n")
		i++
		switch {
		case i < 0:
			line = "\x1b[1m" + line + "\x1b[0m"
		case t.bad[i]:
			line = "\x1b[31m" + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// isColoured reports whether to write colours to w: to a terminal, unless the user has set
// NO_COLOR (no-color.org) or the terminal has none.
func isColoured(w io.Writer, env func(string) string) bool {
	file, ok := w.(*os.File)
	return ok && env("NO_COLOR") == "" && env("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// bars has the characters of bars.
const bars = "█░"

// bar draws how much of an amount is promised.
func bar(part, all float64) string {
	const width = 10
	if all <= 0 {
		return strings.Repeat("░", width)
	}
	n := int(part/all*width + 0.5)
	if part > 0 {
		n = max(n, 1)
	}
	n = min(n, width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}
