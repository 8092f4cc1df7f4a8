// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// findingsOf returns a section for each code of kubectl gpu doctor that a document explains, except
// for causes.
func findingsOf(document string) string {
	causes := cause.All()
	var out strings.Builder
	for _, c := range doctor.Codes() {
		isCause := slices.ContainsFunc(causes, func(other cause.Cause) bool { return other.Anchor() == c.Name })
		if c.Document() != document || c.Check == "health" && isCause {
			continue
		}
		of := "any check"
		if c.Check != "" {
			of = "the check " + code(c.Check)
		}
		fmt.Fprintf(&out, "### %s\n\nA %s of %s: %s.", c.Name, c.State, of, c.Summary)
		if c.Read != "" {
			file, _, _ := strings.Cut(c.Read, "#")
			relative, err := filepath.Rel(filepath.Dir(document), "docs/"+c.Read)
			if err != nil {
				panic(err) // both are relative
			}
			fmt.Fprintf(&out, "\nRead [%s](%s).", filepath.Base(file), relative)
		}
		out.WriteString("\n\n")
	}
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "A unknown of", "An unknown result of")
}
