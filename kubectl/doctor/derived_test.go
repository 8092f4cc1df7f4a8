// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestACauseHidesWhatFollowsFromItOnItsNode(t *testing.T) {
	of := func(node string, codes ...string) []Finding {
		var all []Finding
		for _, code := range codes {
			all = append(all, Finding{Object: onNode(node), Code: code})
		}
		return all
	}
	for name, tc := range map[string]struct {
		found     []Finding
		published bool
		want      []string
	}{
		"the node is not ready":    {of("a", "agent-not-ready", "node-not-ready", "agent-does-not-answer", "swap-on"), true, []string{"node-not-ready", "swap-on"}},
		"the driver is not loaded": {of("a", "driver-not-ready", "nvidia-driver-not-loaded", "node-without-devices", "fact-unknown"), true, []string{"nvidia-driver-not-loaded"}},
		"slices are replaced":      {of("a", "gpus-missing", "pool-incomplete"), true, []string{"pool-incomplete"}},
		"another node":             {append(of("a", "node-not-ready"), of("b", "agent-not-ready")...), true, []string{"node-not-ready", "agent-not-ready"}},
		"nothing is published":     {[]Finding{{Object: "claim a/b", Code: "selector-matches-nothing"}, {Object: wholeCluster, Code: "agent-missing"}}, false, []string{"agent-missing"}},
		"devices are published":    {[]Finding{{Object: "claim a/b", Code: "selector-matches-nothing"}}, true, []string{"selector-matches-nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			left := withoutDerived(tc.found, tc.published)
			require.Same(t, "codes", tc.want, fleet.Each(left, func(f Finding) string { return f.Code }))
		})
	}
}

func TestDerivedCodesExist(t *testing.T) {
	for cause, codes := range derived {
		for _, code := range append(codes, cause) {
			if !isCode(code) {
				t.Errorf("no finding has the code %s", code)
			}
		}
	}
}
