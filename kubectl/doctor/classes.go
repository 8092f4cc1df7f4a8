// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// IsOwnClass reports whether the chart can create a DeviceClass of the name.
func IsOwnClass(name string) bool {
	if profile, ok := strings.CutPrefix(name, "mig-"); ok {
		_, err := gpu.ParseProfile(strings.Replace(profile, "gb.", "gb+", 1))
		return err == nil
	}
	own, ok := strings.CutSuffix(name, ".nvidia.com")
	return ok && (slices.Contains([]string{"mps", "share"}, own) || slices.Contains(kind.All(), kind.Kind(own)))
}

// ClassesOf returns the classes that the requests of a claim name, each once.
func ClassesOf(claim resourceapi.DeviceClaim) []string {
	var names []string
	for _, r := range fleet.Requests(claim) {
		fleet.AddOnce(&names, r.Exactly.DeviceClassName)
	}
	return names
}

// checkMissingClasses reports templates and waiting claims with a class of the chart that does not
// exist. Claims with devices need their class no longer.
func checkMissingClasses(c *Cluster) []Finding {
	var findings []Finding
	examine := func(object string, spec resourceapi.DeviceClaim) {
		for _, name := range ClassesOf(spec) {
			if !IsOwnClass(name) || c.view.HasClass(name) {
				continue
			}
			findings = append(findings, newFinding("class-of-chart-missing", object, fmt.Sprintf("it names the DeviceClass %s of the chart, which does not exist", name),
				"its pods stay Pending", "switch the class on in the chart, below deviceClasses, or have its users name another"))
		}
	}
	for _, template := range c.Templates {
		examine("template "+fleet.FullName(template), template.Spec.Spec.Devices)
	}
	for _, claim := range c.Claims {
		if claim.Status.Allocation == nil {
			examine(nameOf(claim), claim.Spec.Devices)
		}
	}
	return orOK(findings, fleet.NumberVerb(len(c.Classes), "class", "exists", "exist")+", and no template or waiting claim names another one of the chart")
}
