// SPDX-License-Identifier: Apache-2.0

package file_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
)

func FuzzNamesOf1To128Characters(f *testing.F) {
	counted := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,126}[A-Za-z0-9])?$`)
	for _, seed := range []string{"", "a", "7", "-", "a-", "-a", "a-b", "a.b", "a/b", "a\n", "é", "..", strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 127) + "-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := file.IsName(text), counted.MatchString(text); got != want {
			t.Errorf("%q is valid: %t, want %t", text, got, want)
		}
	})
}
