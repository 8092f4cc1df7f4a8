// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"regexp"
	"strings"
	"testing"
)

func FuzzUUIDsOfDevices(f *testing.F) {
	counted := regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,127}$`)
	for _, seed := range []string{"", "GPU-", "GPU-5d32c26d-913c-5913-8d54-b1d8c2a31c3d", "MIG-GPU-5d32c26d/1/0", "gpu-1", "GPU--", "GPU-1,GPU-2", "GPU-1\n", "MIG-" + strings.Repeat("a", 128), "MIG-" + strings.Repeat("a", 129)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := isUUID(text), counted.MatchString(text); got != want {
			t.Errorf("%q is valid: %t, want %t", text, got, want)
		}
	})
}

func FuzzNamesOfNamespaces(f *testing.F) {
	counted := regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
	for _, seed := range []string{"", "a", "_", "A", "a-b", "a b", "a\n", strings.Repeat("z", 64), strings.Repeat("z", 65)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := isNamespace(text), counted.MatchString(text); got != want {
			t.Errorf("%q is valid: %t, want %t", text, got, want)
		}
	})
}
