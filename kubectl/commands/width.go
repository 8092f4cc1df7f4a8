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

// The spaces between the columns of a table. Lines that are too long get narrowGap.
const columnGap, narrowGap = 3, 2

// shortened returns the headings of the columns that a narrow terminal shortens. forced adds
// those of other names. Each has the number of letters that are kept at the end, where generated
// names differ.
func shortened(forced bool) map[string]int {
	tails := map[string]int{"MODEL": 0, "CLAIM": 6}
	if forced {
		for _, heading := range []string{"NAMESPACE", "POD", "NODE", "OBJECT", "WORKLOAD"} {
			tails[heading] = 6
		}
	}
	return tails
}

// leastColumn is the width to which columns are shortened at most. The last column is continued on
// further lines of at least leastText if the names of the others can be shortened.
const leastColumn, leastText = 12, 30

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
	return []string{"LIMITED BY", "CONTAINER", "COMPUTE", "MODEL", "CLAIMS", "PCIE ROOT"}
}

// fit shortens columns of a table until its lines have at most width characters. If that is not
// enough, it removes the bars of amounts, then columns, and continues the last column on further
// lines. The first row is the heading. fit returns the rows and the spaces between columns.
func fit(rows [][]string, width int) (fitting [][]string, gap int) {
	if width <= 0 || len(rows) == 0 {
		return rows, columnGap
	}
	if !shorten(rows, width, columnGap, false) {
		removeBars(rows)
	}
	for _, gap := range []int{columnGap, narrowGap} {
		if shorten(rows, width, gap, false) {
			return rows, gap
		}
	}
	for _, heading := range dropped() {
		drop(rows, heading)
		if shorten(rows, width, narrowGap, false) {
			return rows, narrowGap
		}
	}
	if !shorten(rows, width, narrowGap, true) {
		drop(rows, "NAMESPACE")
	}
	return wrap(rows, width, narrowGap), narrowGap
}

// drop removes the column with a heading, if there is one.
func drop(rows [][]string, heading string) {
	if i := slices.Index(rows[0], heading); i >= 0 {
		for j := range rows {
			rows[j] = slices.Delete(rows[j], i, i+1)
		}
	}
}

// widthsOf returns the width of each column.
func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// wrap continues the words of the last column on further lines.
func wrap(rows [][]string, width, gap int) [][]string {
	var all [][]string
	last := len(rows[0]) - 1
	left := width
	for _, w := range widthsOf(rows)[:last] {
		left -= max(w+gap, leastTab)
	}
	for _, row := range rows {
		line := ""
		for _, word := range strings.Fields(row[last]) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > max(left, leastColumn) {
				all = append(all, append(row[:last:last], line))
				row, line = make([]string, last), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		all = append(all, append(row[:last:last], line))
	}
	return all
}

// shorten shortens the columns that can be, and reports whether the lines fit. It changes no row
// if they do not, unless forced is set.
func shorten(rows [][]string, width, gap int, forced bool) bool {
	widths := widthsOf(rows)
	if last := len(widths) - 1; forced {
		least := leastText
		for _, row := range rows {
			for _, word := range strings.Fields(row[last]) {
				least = max(least, utf8.RuneCountInString(word))
			}
		}
		widths[last] = min(widths[last], least)
	}
	excess := -gap - width
	for _, w := range widths {
		excess += w + gap
	}
	tails := shortened(forced)
	for ; excess > 0; excess-- {
		widest := -1
		for i, heading := range rows[0] {
			if _, can := tails[heading]; can && widths[i] > leastColumn && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	if excess > 0 && !forced {
		return false
	}
	for i, heading := range rows[0] {
		tail, can := tails[heading]
		if !can {
			continue
		}
		for _, row := range rows {
			row[i] = cutMiddle(row[i], widths[i], tail)
		}
	}
	return excess <= 0
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

// cutMiddle returns a text with at most n characters. The last tail characters are kept.
func cutMiddle(text string, n, tail int) string {
	letters := []rune(text)
	if len(letters) <= n {
		return text
	}
	return string(slices.Concat(letters[:n-tail-1], []rune("…"), letters[len(letters)-tail:]))
}
