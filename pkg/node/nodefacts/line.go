// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine is the most bytes of a line.
const maxLine = 1024

// Line returns an error as one line of at most 1 KiB that is safe to print. It returns ""
// for nil. An error can quote labels and files, which other users write.
func Line(err error) string {
	if err == nil {
		return ""
	}
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(err.Error(), "\n", "; "))
	if len(text) <= maxLine {
		return text
	}
	const more = "…"
	end := maxLine - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
