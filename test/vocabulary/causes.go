// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// inBrackets is a command in the text of a remedy.
var inBrackets = regexp.MustCompile(`\(((?:kubectl|nvidia-smi|dmesg)[^)]*)\)`)

// remedy is a text that many causes have. A document has it once, below a heading.
type remedy struct {
	heading, text string
}

// remedies returns the remedies that many causes have.
func remedies() []remedy {
	return []remedy{
		{"Start the pod elsewhere", cause.Unhealthy("recovery-gpu-reset").User},
		{"Reset the GPU", cause.Unhealthy("recovery-gpu-reset").Admin},
		{"Restart the node", cause.Unhealthy("recovery-node-reboot").Admin},
	}
}

// link returns the Markdown link to the remedy.
func (r remedy) link() string {
	return "[" + strings.ToLower(r.heading[:1]) + r.heading[1:] + "](#" + strings.ReplaceAll(strings.ToLower(r.heading), " ", "-") + ")"
}

// causesOf returns the regions of a document about causes: a section for each of its causes. The
// headings are the anchors of the causes. The region "remedies" is there if the causes are faults.
func causesOf(document string) map[string]string {
	of := slices.DeleteFunc(cause.All(), func(c cause.Cause) bool { return doctor.Section(c.Anchor()) != gpu.Page(document+"#"+c.Anchor()) })
	// The introduction of the document says it if all users do the same.
	sameForUsers := !slices.ContainsFunc(of, func(c cause.Cause) bool { return c.User != of[0].User })
	var sections []string
	for _, c := range of {
		text := fmt.Sprintf("### %s\n\n%s. %s.\n\n", c.Anchor(), asSentence(c.Meaning), asSentence(commands(c.Effect)))
		if taint := taintOf(c); taint != "" {
			text += fmt.Sprintf("- Taint: %s.\n", taint)
		}
		if !sameForUsers {
			text += fmt.Sprintf("- User: %s.\n", linked(c.User))
		}
		sections = append(sections, text+fmt.Sprintf("- Administrator: %s.\n- It ends when %s.\n", linked(c.Admin), c.Ends))
	}
	regions := map[string]string{"causes": strings.Join(sections, "\n")}
	if of[0].Key == v1alpha1.TaintUnhealthy {
		var texts []string
		for _, r := range remedies() {
			texts = append(texts, fmt.Sprintf("### %s\n\n%s.\n", r.heading, asSentence(commands(r.text))))
		}
		regions["remedies"] = strings.Join(texts, "\n")
	}
	return regions
}

// faultsOfPrograms returns the table of the XIDs that end a program only.
func faultsOfPrograms() string {
	var table strings.Builder
	table.WriteString("| XID | what it means | what the owner of the program does |\n|---|---|---|\n")
	for _, f := range cause.Faults() {
		fmt.Fprintf(&table, "| %d | %s | %s |\n", f.XID, f.Meaning, f.User)
	}
	return table.String()
}

// linked returns a remedy with a link in place of each text that many causes have.
func linked(text string) string {
	for _, r := range remedies() {
		text = strings.ReplaceAll(text, r.text, r.link())
	}
	return commands(text)
}

// taintOf returns the taint of a cause, or which taints its group has. It returns "" for a fault
// with the name of its section.
func taintOf(c cause.Cause) string {
	switch {
	case c.Key == v1alpha1.TaintUnhealthy && c.Value == c.Anchor():
		return ""
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

// documentsOf returns the documents with sections about codes, sorted: about causes, and about the
// other findings.
func documentsOf() (ofCauses, ofFindings []string) {
	causes := cause.All()
	for _, c := range doctor.Codes() {
		if c.Check == "health" && slices.ContainsFunc(causes, func(of cause.Cause) bool { return of.Anchor() == c.Name }) {
			ofCauses = append(ofCauses, c.Document())
		} else {
			ofFindings = append(ofFindings, c.Document())
		}
	}
	slices.Sort(ofCauses)
	slices.Sort(ofFindings)
	return slices.Compact(ofCauses), slices.Compact(ofFindings)
}
