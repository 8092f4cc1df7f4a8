// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// inBrackets is a command in the text of a remedy.
var inBrackets = regexp.MustCompile(`\(((?:kubectl|nvidia-smi|dmesg)[^)]*)\)`)

// causes returns a section for each cause for which new claims get no device. The headings are
// the anchors of the causes.
func causes() string {
	var sections []string
	for _, c := range cause.All() {
		sections = append(sections, fmt.Sprintf("### %s\n\n%s.\n\n%s", c.Anchor(), asSentence(c.Meaning), table([][]string{
			{"taint", taintOf(c)},
			{"programs", commands(c.Effect)},
			{"what their users do", commands(c.User)},
			{"what the administrator does", commands(c.Admin)},
			{"it ends when", commands(c.Ends)},
		})))
	}
	return strings.Join(sections, "\n")
}

// taintOf returns the taint of a cause, or which taints its group has.
func taintOf(c cause.Cause) string {
	switch {
	case c.Value == "" && c.Key != v1alpha1.TaintUnhealthy:
		return code(c.Key)
	case c.Value == "":
		return code(c.Key) + ", with any other value"
	case strings.HasSuffix(c.Value, "-"):
		return code(c.Key+"="+c.Value+"…") + ", with any other ending"
	default:
		return code(c.Key + "=" + c.Value)
	}
}

// commands sets the commands in a text as code.
func commands(text string) string { return inBrackets.ReplaceAllString(text, "(`$1`)") }

// asSentence returns a clause with a capital.
func asSentence(clause string) string { return strings.ToUpper(clause[:1]) + clause[1:] }
