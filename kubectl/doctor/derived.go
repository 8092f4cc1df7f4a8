// SPDX-License-Identifier: Apache-2.0

package doctor

import "slices"

// derived has the codes that another finding about the same node explains: they end with its cause.
// The key is the code of the cause. The facts of a node that is not ready are old.
var derived = map[string][]string{
	"node-not-ready": {
		"agent-not-ready", "agent-does-not-answer", "supervisor-not-ready", "supervisor-missing", "node-without-agent", "node-without-devices",
		"claims-without-agent", "pool-incomplete", "pod-not-scheduled", "config-not-checked", "label-without-agent", "runtime-unknown",
	},
	"nvidia-driver-not-loaded":       {"driver-not-ready", "node-without-devices", "fact-unknown", "gpus-missing", "fabric-manager-missing", "fabric-not-registered"},
	"nvidia-driver-releases-differ":  {"driver-not-ready", "node-without-devices", "fact-unknown", "gpus-missing", "fabric-manager-missing", "fabric-not-registered"},
	"driver-not-ready":               {"node-without-devices", "gpus-missing"},
	"pool-incomplete":                {"gpus-missing"},
	"agent-not-ready":                {"agent-does-not-answer", "node-without-devices", "config-not-checked"},
	"fabric-manager-release-differs": {"fabric-not-registered", "fabric-manager-missing", "fabric-not-ready"},
}

// derivedOfNothing has the codes about the cluster that follow from the absence of all devices.
var derivedOfNothing = []string{"selector-matches-nothing", "shares-not-published"}

// withoutDerived returns the findings that no other finding explains.
func withoutDerived(findings []Finding, published bool) []Finding {
	explained := map[string]map[string]bool{}
	for _, f := range findings {
		for _, code := range derived[f.Code] {
			if explained[f.Object] == nil {
				explained[f.Object] = map[string]bool{}
			}
			explained[f.Object][code] = true
		}
	}
	return slices.DeleteFunc(findings, func(f Finding) bool {
		return f.Code != "" && (explained[f.Object][f.Code] || !published && slices.Contains(derivedOfNothing, f.Code))
	})
}
