// SPDX-License-Identifier: Apache-2.0

package containerlimits

import (
	"regexp"
	"strings"
	"testing"
)

// A name becomes the name of a folder, and the hook gets it from the CDI spec.
func FuzzNamesOf1To253Characters(f *testing.F) {
	counted := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,252}$`)
	for _, seed := range []string{"", "a", "7_", "a-.", ".a", "_a", "a/b", "..", "a\n", "é", strings.Repeat("a", 253), strings.Repeat("a", 254)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := isName(text), counted.MatchString(text); got != want {
			t.Errorf("%q is valid: %t, want %t", text, got, want)
		}
	})
}
