// SPDX-License-Identifier: Apache-2.0

// Package plain makes text of a cluster safe for terminals. Names, messages and attributes are
// written by other users: control characters in them could move the cursor, hide lines, change
// colours or the title, or write to the clipboard, and bidirectional ones show text in another
// order.
package plain

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns text with only printable characters, spaces, tabs and ends of lines. Others
// become escape sequences of JSON, such as \u001b, and bytes that are not UTF-8 become \x
// and two digits.
func Text(text string) string { return escape(text, "\n\t") }

// Line is like [Text] for a text inside a line: it escapes tabs and ends of lines as well.
func Line(text string) string { return escape(text, "") }

// Writer returns a writer that passes [Text] on to w. A character must be in one call of Write.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

// Write implements [io.Writer].
func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escape(text, allowed string) string {
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r) || strings.ContainsRune(allowed, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
