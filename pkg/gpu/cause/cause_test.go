// SPDX-License-Identifier: Apache-2.0

package cause_test

import (
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

func TestEveryCauseIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cause.All() {
		for _, text := range []string{c.Key, c.Code, c.Meaning, c.Effect, c.User, c.Admin, c.Ends} {
			if text == "" {
				t.Errorf("%s %q: a text is missing: %+v", c.Key, c.Value, c)
			}
		}
		if seen[c.Code] {
			t.Errorf("two causes have the code %q", c.Code)
		}
		seen[c.Code] = true
		if found, ok := cause.Of(c.Key, c.Value); !ok || found.Meaning != c.Meaning {
			t.Errorf("Of(%q, %q) = %+v", c.Key, c.Value, found)
		}
		if strings.Contains(c.User+c.Admin, "tolerate") {
			t.Errorf("%s: a device that fails is not to be tolerated", c.Code)
		}
	}
}

func TestAValueOfANewerAgentHasTheCauseOfItsGroup(t *testing.T) {
	for value, want := range map[string]string{
		"xid-79":        "the GPU has fallen off the bus",
		"xid-790":       "the driver reported an XID after which NVIDIA recommends a reset or a restart",
		"recovery-new":  "the driver requests a recovery action that this release does not know",
		"of-the-future": "the GPU has a fault that this release does not know",
	} {
		c, ok := cause.Of(v1alpha1.TaintUnhealthy, value)
		if !ok || c.Meaning != want || c.Code != value {
			t.Errorf("Of(%q) = %v, code %q, %q; want %q", value, ok, c.Code, c.Meaning, want)
		}
	}
	if c, ok := cause.Of(v1alpha1.TaintWithdrawn, v1alpha1.OfferShare); !ok || c.Code != "withdrawn" {
		t.Errorf("the taint of a withdrawn share: %v, %+v", ok, c)
	}
	if _, ok := cause.Of("example.com/broken", "yes"); ok {
		t.Error("a taint of another party has a cause")
	}
}

func TestRemediesNameTheGPU(t *testing.T) {
	c, _ := cause.Of(v1alpha1.TaintUnhealthy, "xid-48")
	named := c.For("dgx", "gpu-1b-00", "0000:1b:00.0")
	for _, want := range []string{"kubectl gpu drain dgx/gpu-1b-00", "--id 0000:1b:00.0"} {
		if !strings.Contains(named.Admin, want) {
			t.Errorf("remedy %q lacks %q", named.Admin, want)
		}
	}
	if strings.Contains(named.Admin, "NODE") || strings.Contains(named.Admin, "ADDRESS") {
		t.Errorf("remedy %q has a placeholder", named.Admin)
	}
}

func TestMessagesNameWhatTheDriverReported(t *testing.T) {
	for value, want := range map[string]string{
		"xid-79":            "XID 79: the GPU has fallen off the bus",
		"xid-790":           "XID 790: the driver reported an XID after which NVIDIA recommends a reset or a restart",
		"recovery-gpu-pray": "the driver requests a recovery action that this release does not know (recovery-gpu-pray)",
		"fabric-failed":     "the GPU could not join its NVSwitch fabric",
	} {
		if got := cause.Unhealthy(value).Message(); got != want {
			t.Errorf("message of %s: %q, want %q", value, got, want)
		}
	}
}

func TestAnchorsOfGroupsHaveNoHyphen(t *testing.T) {
	for value, want := range map[string]string{"xid-79": "xid-79", "xid-790": "xid", "recovery-gpu-pray": "recovery", "of-the-future": "fault"} {
		if got := cause.Unhealthy(value).Anchor(); got != want {
			t.Errorf("anchor of %s: %q, want %q", value, got, want)
		}
	}
}
