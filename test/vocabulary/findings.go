// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// findings returns a section for each code of kubectl gpu doctor.
func findings() string {
	causes := cause.All()
	var out strings.Builder
	for _, c := range doctor.Codes() {
		of := "any check"
		if c.Check != "" {
			of = "the check " + code(c.Check)
		}
		fmt.Fprintf(&out, "### %s\n\nA %s of %s: %s.", c.Name, c.State, of, c.Summary)
		if i := slices.IndexFunc(causes, func(other cause.Cause) bool { return strings.TrimSuffix(other.Code, "-") == c.Name }); c.Check == "health" && i >= 0 {
			fmt.Fprintf(&out, "\n\n%s", aboutCause(causes[i]))
		}
		if c.Read != "" {
			path, _, _ := strings.Cut(c.Read, "#")
			fmt.Fprintf(&out, "\nRead [%s](%s).", path, c.Read)
		}
		out.WriteString("\n\n")
	}
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "A unknown of", "An unknown result of")
}

// aboutCause returns the table of a cause.
func aboutCause(c cause.Cause) string {
	taint := code(c.Key + "=" + c.Value)
	switch {
	case c.Value == "":
		taint = code(c.Key) + " with another value"
	case strings.HasSuffix(c.Value, "-"):
		taint = code(c.Key+"="+c.Value+"…") + " with another value"
	}
	return table([][]string{{"taint", taint}, {"programs", c.Effect}, {"their users", c.User}, {"administrators", c.Admin}, {"ends when", c.Ends}})
}
