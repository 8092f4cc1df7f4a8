// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

// findingsDocument has a section for each code of kubectl gpu doctor, except for causes of taints.
const findingsDocument = "docs/admin/findings.md"

// findings returns the regions of the document about findings: of the cluster, of claims and of
// nodes.
func findings() map[string]string {
	groups := map[string][]string{}
	for _, c := range doctor.Codes() {
		if c.Document() == findingsDocument {
			group := groupOf(c.Check)
			groups[group] = append(groups[group], findingOf(c))
		}
	}
	regions := map[string]string{}
	for group, sections := range groups {
		regions[group] = strings.Join(sections, "\n")
	}
	return regions
}

// groupOf returns the region with the findings of a check.
func groupOf(check string) string {
	switch check {
	case "", "server", "resources", "shares", "classes", "missing-classes", "selectors", "extended-resources", "policies", "agents", "rollouts", "supervisors":
		return "cluster"
	case "claims", "prepared", "consumers", "limits", "containers":
		return "claims"
	default:
		return "nodes"
	}
}

// findingOf returns the section about a code.
func findingOf(c doctor.Code) string {
	text := fmt.Sprintf("### %s\n\n%s", c.Name, asSentence(string(c.State)))
	if c.Check != "" {
		text += ", " + code(c.Check)
	}
	text += ": " + c.Summary + "."
	if c.Read != "" {
		relative, err := filepath.Rel(filepath.Dir(findingsDocument), "docs/"+c.Read)
		if err != nil {
			panic(err) // both are relative
		}
		text += fmt.Sprintf(" [More](%s).", relative)
	}
	return text + "\n"
}
