// SPDX-License-Identifier: Apache-2.0

package file

import "strings"

const (
	// NameForm describes the names of which [IsName] approves.
	NameForm = "1 to 128 letters, digits and inner dashes"
	longest  = 128
)

// IsName reports whether a file can have the text as its name, or as a part of it. The text
// can come from another party, as the UID of a claim does: no such name is a path.
func IsName(text string) bool {
	if text == "" || len(text) > longest || text[0] == '-' || text[len(text)-1] == '-' {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) < 0
}
