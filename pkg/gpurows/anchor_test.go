// SPDX-License-Identifier: Apache-2.0

package gpurows

import "testing"

func TestEachReasonHasTheAnchorOfItsSection(t *testing.T) {
	for code, want := range map[string]string{
		"no-agent": "node-without-agent", "agent-not-ready": "agent-not-ready", "node-not-ready": "node-not-ready",
		"xid-79": "xid-79", "foreign-process": "foreign-process", "mig-mode": "mig-mode", "cordoned": "cordoned",
		"xid-9999": "xid", "a-fault-of-a-newer-agent": "fault",
		"example.com/repair": "", "repair=disk": "",
	} {
		if got := (Reason{Code: code}).Anchor(); got != want {
			t.Errorf("%s: got %q, want %q", code, got, want)
		}
	}
}
