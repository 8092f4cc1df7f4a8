// SPDX-License-Identifier: Apache-2.0

package gpu

import "testing"

func TestALinkIsToTheDocumentsOfTheRelease(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":                       "v0.1.0",
		"v1.12.3-rc.1":                 "v1.12.3-rc.1",
		"v0.1.0+71a7b4cb":              "main",
		"v0.1.0+71a7b4cb-dirty":        "main",
		"v0.0.0-master+$Format:%H$":    "main",
		"v0.1.0/../../../other/blob/x": "main",
	} {
		want = "https://github.com/gpu-dra/gpu-dra-driver/blob/" + want + "/docs/user/share.md#amounts"
		if got := pageOf(version, "docs/user/share.md#amounts"); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}
