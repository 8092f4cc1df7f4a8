// SPDX-License-Identifier: Apache-2.0

package gpurows

import "testing"

func TestEachReasonHasASection(t *testing.T) {
	for code, want := range map[string]string{
		"no-agent":        "docs/admin/findings-nodes.md#node-without-agent",
		"agent-not-ready": "docs/admin/findings-cluster.md#agent-not-ready",
		"node-not-ready":  "docs/admin/findings-nodes.md#node-not-ready",
		"xid-79":          "docs/admin/causes-xids.md#xid-79",
		"foreign-process": "docs/admin/causes-use.md#foreign-process",
		"mig-mode":        "docs/admin/causes-use.md#mig-mode",
		"cordoned":        "docs/admin/causes-use.md#cordoned",
		"lost":            "docs/admin/causes-faults.md#lost",
		"xid-9999":        "docs/admin/causes-xids.md#xid",

		"recovery-of-the-future":   "docs/admin/causes-faults.md#recovery",
		"a-fault-of-a-newer-agent": "docs/admin/causes-faults.md#fault",
		"example.com/repair":       "",
		"repair=disk":              "",
	} {
		if got := (Reason{Code: code}).Section(); got != want {
			t.Errorf("%s: got %q, want %q", code, got, want)
		}
	}
}
