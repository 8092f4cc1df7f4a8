// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// A page says of a GPU without its agent what the commands say, and never that it is ok or free.
func TestAGPUWithoutItsAgentIsNotOK(t *testing.T) {
	w := shared(t)
	since := metav1.NewTime(time.Now().Add(-100*time.Hour - 30*time.Minute))
	site := pages(t, &world{World: w, agents: map[string]rows.Agent{
		"a": {Problem: rows.Reason{Code: rows.CodeAgentNotReady, Since: &since}},
		// A node that should have GPUs.
		"b": {Problem: rows.Reason{Code: rows.CodeNoAgent}},
	}})
	const unknown = `docs/admin/findings.md#agent-not-ready" rel="noreferrer">agent not ready</a> since 4d4h ago`
	for target, want := range map[string][]string{
		"/":                       {"? unknown:<wbr", unknown, "? not published:<wbr", `#node-without-agent" rel="noreferrer">no agent</a>`, "<dt>Health unknown</dt><dd>5</dd>", "<dt>Free</dt><dd>0</dd>"},
		"/?q=not+published":       {`data-key="b"`},
		"/nodes/a":                {unknown, `<span class="mode unknown">unknown</span>`},
		"/nodes/b":                {"? not published:<wbr", `data-label="Memory promised"><div>-</div>`, `data-label="Compute promised"><div>-</div>`},
		"/nodes/a/gpus/gpu-18-00": {unknown},
		"/claims/default/half":    {unknown, `data-label="Limited by"`},
	} {
		_, text := open(t, site, target)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
		if strings.Contains(text, `class="ok"`) {
			t.Errorf("%s: a GPU is ok in %s", target, text)
		}
	}
}

// The compute of a GPU that claims take in units is counted in them.
func TestTheComputeOfAGPUIsInItsUnits(t *testing.T) {
	site := pages(t, &world{World: busy(t)})
	_, text := open(t, site, "/nodes/dgx")
	for _, part := range []string{"</svg>1/7 slices", "</svg>50%", "</svg>100%"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
}

// Each link leads to a section of a document.
func TestSectionsOfReasonsExist(t *testing.T) {
	codes := []string{rows.CodeNoAgent, rows.CodeAgentNotReady, rows.CodeNodeNotReady, "xid-1234", "of-the-future"}
	for _, c := range cause.All() {
		codes = append(codes, c.Code)
	}
	for _, code := range codes {
		section := strings.TrimPrefix(rows.Reason{Code: code}.Section(), gpu.Page(""))
		document, anchor, _ := strings.Cut(section, "#")
		text, err := os.ReadFile("../../" + document)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if anchor == "" || !strings.Contains(string(text), "\n### "+anchor+"\n") {
			t.Errorf("%s: there is no section %q", code, section)
		}
	}
}
