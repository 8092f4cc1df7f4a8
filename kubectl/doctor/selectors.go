// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// checkSelectors reports classes, templates and claims that read attributes or capacities
// which devices lack. Claims with devices are left out: nothing evaluates them again.
func checkSelectors(c *Cluster) []Finding {
	ctx := context.Background() // the search has its own bounds
	names := c.view.NewSearch(0).Names()
	var findings []Finding
	for _, class := range c.Classes {
		findings = append(findings, nameFindings("class "+class.Name, names.Selectors(ctx, fleet.Expressions(class.Spec.Selectors)), true)...)
	}
	claim := func(object string, spec resourceapi.DeviceClaim) {
		findings = append(findings, nameFindings(object, names.Claim(ctx, c.Classes, spec), false)...)
	}
	for _, template := range c.Templates {
		claim("template "+fleet.FullName(template), template.Spec.Spec.Devices)
	}
	open := 0
	for _, own := range c.Claims {
		if own.Status.Allocation == nil {
			open++
			claim(nameOf(own), own.Spec.Devices)
		}
	}
	if names.Full() {
		findings = append(findings, newFinding("selectors-not-evaluated", wholeCluster, "there are more selectors than this check evaluates",
			"some classes, templates and claims are not checked", "kubectl gpu explain checks the claims of one pod"))
	}
	return orOK(findings, "devices have what "+fleet.Number(len(c.Classes), "class")+", "+fleet.Number(len(c.Templates), "template")+" and "+fleet.Number(open, "waiting claim")+" read")
}

// nameFindings returns a finding for each problem. One that only the pods of a template or claim
// have is a warning; administrators write the classes.
func nameFindings(object string, problems []fleet.NameProblem, isClass bool) []Finding {
	var findings []Finding
	for _, p := range problems {
		f := newFinding("selector-matches-nothing", object, p.Found, "no device meets it, and its pods stay Pending", p.Remedy)
		if p.Fails {
			f.Code = "selector-fails"
			if isClass {
				f.State = Problem
			}
			f.Meaning = "the scheduling of its pods ends on all nodes as soon as one of these devices is examined"
		}
		findings = append(findings, f)
	}
	return findings
}
