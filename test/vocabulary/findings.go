// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// findings returns a section for each code of kubectl gpu doctor outside [causes].
func findings() string {
	causes := cause.All()
	var out strings.Builder
	for _, c := range doctor.Codes() {
		isCause := slices.ContainsFunc(causes, func(other cause.Cause) bool { return other.Anchor() == c.Name })
		if c.Check == "health" && isCause {
			continue
		}
		of := "any check"
		if c.Check != "" {
			of = "the check " + code(c.Check)
		}
		fmt.Fprintf(&out, "### %s\n\nA %s of %s: %s.", c.Name, c.State, of, c.Summary)
		if c.Read != "" {
			file, _, _ := strings.Cut(c.Read, "#")
			fmt.Fprintf(&out, "\nRead [%s](%s).", path.Base(file), "../"+c.Read)
		}
		out.WriteString("\n\n")
	}
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "A unknown of", "An unknown result of")
}
