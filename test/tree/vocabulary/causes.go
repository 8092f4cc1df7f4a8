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

// remedy is a text that many causes have, also an effect or an end. A document has it once, below a
// heading.
type remedy struct {
	heading, text string
}

// remedies returns the remedies that many causes have.
func remedies() []remedy {
	return []remedy{
		{"Start the pod elsewhere", cause.Unhealthy("recovery-gpu-reset").User},
		{"Reset the GPU", cause.Unhealthy("recovery-gpu-reset").Admin},
		{"Restart the node", cause.Unhealthy("recovery-node-reboot").Admin},
		{"Programs fail", cause.Unhealthy("lost").Effect},
		{"Programs hang", cause.Unhealthy("timeout").Effect},
		{"When the request ends", cause.Unhealthy("recovery-gpu-reset").Ends},
		{"After a reload", cause.Unhealthy("xid-46").Ends},
	}
}

// link returns the Markdown link to the remedy.
func (r remedy) link() string {
	return "[" + strings.ToLower(r.heading[:1]) + r.heading[1:] + "](#" + strings.ReplaceAll(strings.ToLower(r.heading), " ", "-") + ")"
}

// causesOf returns the regions of the document about causes: a section for each cause, in three
// groups, the remedies that many have, and the faults of programs. The headings are the anchors of
// the causes. The introduction of the document says what users do about most causes of a group.
func causesOf() map[string]string {
	groups := map[string][]string{}
	for _, c := range cause.All() {
		group, usual := "use", ""
		switch {
		case c.OfShare():
			continue
		case c.Key == v1alpha1.TaintUnhealthy && strings.HasPrefix(c.Value, "xid-"):
			group, usual = "xids", remedies()[0].text
		case c.Key == v1alpha1.TaintUnhealthy:
			group, usual = "faults", remedies()[0].text
		}
		groups[group] = append(groups[group], sectionOf(c, usual))
	}
	var texts []string
	for _, r := range remedies() {
		texts = append(texts, fmt.Sprintf("### %s\n\n%s.\n", r.heading, asSentence(commands(r.text))))
	}
	regions := map[string]string{"remedies": strings.Join(texts, "\n"), "programs": faultsOfPrograms()}
	for group, sections := range groups {
		regions[group] = strings.Join(sections, "\n")
	}
	return regions
}

// sectionOf returns the section about a cause. It leaves out the usual remedy of users, and that
// programs run on.
func sectionOf(c cause.Cause, usual string) string {
	text := fmt.Sprintf("### %s\n\n%s.", c.Anchor(), asSentence(c.Meaning))
	goesOn := cause.Unhealthy("permission-denied")
	if c.Effect != goesOn.Effect {
		text += " " + asSentence(linked(c.Effect)) + "."
	}
	if taint := taintOf(c); taint != "" {
		text += fmt.Sprintf(" Taint: %s.", taint)
	}
	text += "\n"
	if c.User != usual && (c.Effect != goesOn.Effect || c.User != goesOn.User) {
		text += fmt.Sprintf("Users: %s.\n", linked(c.User))
	}
	ends := linked(c.Ends)
	if ends == c.Ends {
		ends = "when " + ends
	}
	return text + fmt.Sprintf("%s. Ends %s.\n", asSentence(linked(c.Admin)), ends)
}

// faultsOfPrograms returns the table of the XIDs that end a program only.
func faultsOfPrograms() string {
	var table strings.Builder
	table.WriteString("| XID | what it means | what the owner of the program does |\n|---|---|---|\n")
	for _, f := range cause.Faults() {
		// The introduction says it of all of them.
		meaning := strings.TrimSuffix(f.Meaning, "; the GPU is well")
		fmt.Fprintf(&table, "| %d | %s | %s |\n", f.XID, meaning, f.User)
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

// asSentence returns a clause with a capital, also in the text of a link.
func asSentence(clause string) string {
	at := len(clause) - len(strings.TrimPrefix(clause, "["))
	return clause[:at] + strings.ToUpper(clause[at:at+1]) + clause[at+1:]
}
