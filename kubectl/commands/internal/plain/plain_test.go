// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"gpu-1b-00 ██ größer 山\n\tnext": "gpu-1b-00 ██ größer 山\n\tnext",
		"\x1b[31mred\x1b]52;c;x\x07":    `\u001b[31mred\u001b]52;c;x\u0007`,
		"a\rb\bc\x00d\x7f":              `a\u000db\u0008c\u0000d\u007f`,
		"\u009b2J\u0085":                `\u009b2J\u0085`,       // C1 as characters
		"\x9b2J":                        `\x9b2J`,               // C1 as a byte
		"a\u202etxt.exe\u2066":          `a\u202etxt.exe\u2066`, // order of characters
		"\u200b\ufeff\u2028\u00ad":      `\u200b\ufeff\u2028\u00ad`,
		"\U000e0041\ufffd":              `\udb40\udc41` + "\ufffd",
		"\xff\xfe":                      `\xff\xfe`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got, want := Line("a\nb\tc\x1b"), `a\nb\tc\u001b`; got != want {
		t.Errorf("a line: %q, want %q", got, want)
	}
}

// In JSON, the escape sequences have the same meaning as the characters.
func TestWriterKeepsJSON(t *testing.T) {
	const value = "a\x1b\u009b\u202e\U000e0041z"
	var out strings.Builder
	require.NoError(t, json.NewEncoder(Writer(&out)).Encode(value))
	var got string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got != value {
		t.Errorf("%s is %q (%v), want %q", out.String(), got, err, value)
	}
	if strings.ContainsAny(out.String(), "\u009b\u202e") {
		t.Errorf("got %q", out.String())
	}
}
