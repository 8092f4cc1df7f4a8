// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columnGap is the number of spaces between the columns of a table, and narrowGap the one on a
// narrow terminal.
const columnGap, narrowGap = 3, 2

// shortened returns the headings of the columns that a narrow terminal shortens. Each has the
// number of letters that are kept at the end, where generated names of claims differ.
func shortened() map[string]int { return map[string]int{"MODEL": 0, "CLAIM": 6} }

// leastColumn is the width to which columns are shortened at most.
const leastColumn = 12

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

// fit shortens columns of a table until its lines have at most width characters, if that is
// possible. If it is not, it also removes the bars of amounts. The first row is the heading. fit
// returns the number of spaces between columns.
func fit(rows [][]string, width int) (gap int) {
	if width <= 0 || len(rows) == 0 {
		return columnGap
	}
	if !shorten(rows, width, columnGap, false) {
		removeBars(rows)
	}
	for _, gap := range []int{columnGap, narrowGap} {
		if shorten(rows, width, gap, gap == narrowGap) {
			return gap
		}
	}
	return narrowGap
}

// shorten shortens the columns that can be, and reports whether the lines fit. It changes no row
// if they do not, unless forced is set.
func shorten(rows [][]string, width, gap int, forced bool) bool {
	widths, total := make([]int, len(rows[0])), 0
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i]
	}
	excess := total + gap*(len(widths)-1) - width
	tails := shortened()
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

// removeBars removes the bars before amounts.
func removeBars(rows [][]string) {
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
