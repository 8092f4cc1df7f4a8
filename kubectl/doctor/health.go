// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// checkHealth reports the GPUs with taints of the driver or of a rule.
func checkHealth(c *Cluster) []Finding {
	var findings []Finding
	gpus := 0
	for _, node := range c.nodes {
		taints, tainted := map[string]resourceapi.DeviceTaint{}, map[string][]fleet.GPU{}
		for _, g := range node.GPUs {
			gpus++
			for _, d := range g.Devices {
				for _, taint := range d.Taints() {
					text := fleet.TaintText(taint)
					if known, found := taints[text]; !found || taint.TimeAdded != nil && taint.TimeAdded.Before(known.TimeAdded) {
						taints[text] = taint
					}
					if n := len(tainted[text]); n == 0 || tainted[text][n-1].Name != g.Name {
						tainted[text] = append(tainted[text], g)
					}
				}
			}
		}
		for _, text := range slices.Sorted(maps.Keys(taints)) {
			findings = append(findings, c.tainted(node.Name, tainted[text], text, taints[text]))
		}
	}
	return orOK(findings, fleet.Number(gpus, "GPU")+" without taints")
}

// tainted returns the finding about a taint of GPUs of a node. One cause is one finding.
func (c *Cluster) tainted(node string, gpus []fleet.GPU, text string, taint resourceapi.DeviceTaint) Finding {
	names := fleet.Each(gpus, func(g fleet.GPU) string { return g.Name })
	verb := " has the taint "
	if len(gpus) > 1 {
		verb = " have the taint "
	}
	f := Finding{Object: onNode(node), Found: list(names) + verb + text}
	if taint.TimeAdded != nil {
		f.Found += c.since(taint.TimeAdded.Time)
	}
	known, ok := fleet.CauseOf(taint, fleet.DeviceID{Pool: node, Device: gpus[0].Name})
	if !ok {
		f.Code, f.State, f.Meaning = codeRule, Warning, "new claims do not get it"
		f.Remedy = "if the device is in order again, delete the DeviceTaintRule with this taint: kubectl get devicetaintrules"
		var rules []string
		for _, g := range gpus {
			for _, d := range g.Devices {
				rules = append(rules, fleet.RulesOf(c.TaintRules, d.ID, taint)...)
			}
		}
		slices.Sort(rules)
		if rules != nil {
			f.Remedy = "if the device is in order again, run kubectl delete devicetaintrule " + strings.Join(slices.Compact(rules), " ")
		}
		return f
	}
	if len(gpus) > 1 {
		known.Admin += "; so for each of these GPUs"
	}
	f.Code, f.State, f.Remedy = known.Code, stateOf(known), known.Admin
	if !isCode(f.Code) {
		f.Code = codeFault
	}
	f.Meaning = known.Meaning + "; " + known.Effect + "; new claims do not get it"
	return f
}
