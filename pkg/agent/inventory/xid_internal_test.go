// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	texts "github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

func TestEveryXIDThatMarksAGPUIsExplained(t *testing.T) {
	for number, rule := range xidRules {
		marks := rule.marks == always || rule.marks == unlessReported
		if value := fmt.Sprintf("xid-%d", number); texts.Known(v1alpha1.TaintUnhealthy, value) != marks {
			t.Errorf("%s marks a GPU: %t, and the table of causes says otherwise", value, marks)
		}
	}
	for _, c := range texts.All() {
		number, isXID := strings.CutPrefix(c.Value, "xid-")
		if !isXID || number == "" {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, 64); err != nil || xidRules[n] == (xidRule{}) {
			t.Errorf("the table of causes has %q, which marks no GPU", c.Value)
		}
	}
}

// The users of a GPU learn of an XID by its taint, or as a fault of a program.
func TestEveryXIDOfProgramsIsExplained(t *testing.T) {
	for number, rule := range xidRules {
		if _, found := texts.FaultOf(number); found != (rule.marks == spaced || rule.marks == ignored) {
			t.Errorf("XID %d: rule %+v, and among the faults of programs: %t", number, rule, found)
		}
	}
	for _, f := range texts.Faults() {
		if f.Meaning == "" || f.User == "" || xidRules[f.XID] == (xidRule{}) {
			t.Errorf("a text or the rule is missing: %+v", f)
		}
	}
}

func TestFurtherCausesAreExplained(t *testing.T) {
	for _, value := range []string{damaged, "ecc"} {
		if !texts.Known(v1alpha1.TaintUnhealthy, value) {
			t.Errorf("the table of causes lacks %q", value)
		}
	}
}

// An agent that knows more causes has written the record, and this one reads it.
func TestTheRecordOfANewerAgentKeepsItsText(t *testing.T) {
	causes := []cause{{Cause: "of-the-future", Message: "the GPU dreams"}, {Cause: "xid-79", Message: "an old text"}, {Cause: "xid-999"}}
	want := "the GPU dreams; XID 79: the GPU has fallen off the bus; XID 999: the driver reported an XID after which NVIDIA recommends a reset or a restart"
	if got := messages(causes); got != want {
		t.Errorf("messages %q, want %q", got, want)
	}
	if got := newCause("xid-62").Message; got != "XID 62: a micro-controller of the GPU has halted" {
		t.Errorf("older agents would read %q", got)
	}
}
