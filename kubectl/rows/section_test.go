// SPDX-License-Identifier: Apache-2.0

package rows

import "testing"

func TestEachReasonHasASection(t *testing.T) {
	const blob = "https://github.com/gpu-dra/gpu-dra-driver/blob/main/"
	for code, want := range map[string]string{
		"no-agent":        blob + "docs/admin/findings.md#node-without-agent",
		"agent-not-ready": blob + "docs/admin/findings.md#agent-not-ready",
		"node-not-ready":  blob + "docs/admin/findings.md#node-not-ready",
		"xid-79":          blob + "docs/admin/causes.md#xid-79",
		"foreign-process": blob + "docs/admin/causes.md#foreign-process",
		"mig-mode":        blob + "docs/admin/causes.md#mig-mode",
		"cordoned":        blob + "docs/admin/causes.md#cordoned",
		"lost":            blob + "docs/admin/causes.md#lost",
		"xid-9999":        blob + "docs/admin/causes.md#xid",

		"recovery-of-the-future":   blob + "docs/admin/causes.md#recovery",
		"a-fault-of-a-newer-agent": blob + "docs/admin/causes.md#fault",
		"example.com/repair":       "",
		"repair=disk":              "",
	} {
		if got := (Reason{Code: code}).Section(); got != want {
			t.Errorf("%s: got %q, want %q", code, got, want)
		}
	}
}
