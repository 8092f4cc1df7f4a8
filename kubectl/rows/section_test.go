// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"os"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

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

func TestSectionsOfReasonsExist(t *testing.T) {
	codes := []string{CodeNoAgent, CodeAgentNotReady, CodeNodeNotReady, "xid-1234", "of-the-future"}
	for _, c := range cause.All() {
		codes = append(codes, c.Code)
	}
	for _, code := range codes {
		document, anchor, _ := strings.Cut(strings.TrimPrefix(Reason{Code: code}.Section(), gpu.Page("")), "#")
		text, err := os.ReadFile("../../" + document)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if anchor == "" || !strings.Contains(string(text), "\n### "+anchor+"\n") {
			t.Errorf("%s: there is no section %q of %s", code, anchor, document)
		}
	}
}
