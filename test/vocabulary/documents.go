// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// documents returns the generated regions of each document, by their names.
func documents(names []name) map[string]map[string]string {
	own := withPrefix(names, "Attribute")
	return map[string]map[string]string{
		"docs/attributes.md": {"attributes": attributes(append(own[:len(own):len(own)], standardAttributes()...))},
	}
}

// standardAttributes returns the attributes that Kubernetes names and the driver
// publishes.
func standardAttributes() []name {
	return []name{
		{value: string(deviceattribute.StandardDeviceAttributePCIBusID), meaning: "the PCI address", detail: "string: 0000:1b:00.0"},
		{value: string(deviceattribute.StandardDeviceAttributePCIeRoot), meaning: "the PCIe root; matches NICs and other devices on the same root", detail: "string: pci0000:15"},
		{value: string(deviceattribute.StandardDeviceAttributeNUMANode), meaning: "the NUMA node", detail: "int: 0"},
	}
}

func attributes(names []name) string {
	rows := [][]string{{"attribute", "type", "example", "meaning"}}
	for _, n := range names {
		kind, example, _ := strings.Cut(n.detail, ": ")
		rows = append(rows, []string{code(n.value), kind, code(example), asMarkdown(n.meaning)})
	}
	return table(rows)
}

// table returns a Markdown table, the first row of which is the head.
func table(rows [][]string) string {
	var out strings.Builder
	for i, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(&out, "| %s ", cell)
		}
		out.WriteString("|\n")
		if i == 0 {
			out.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return strings.ReplaceAll(out.String(), "|  |", "| |")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

var inCode = regexp.MustCompile(`"([^"]+)"|(--[a-z-]+)`)

// asMarkdown sets quoted words and flags as code.
func asMarkdown(text string) string { return inCode.ReplaceAllString(text, "`$1$2`") }

var region = regexp.MustCompile(`(?s)(<!-- begin generated: ([a-z-]+) -->\n).*?(<!-- end generated -->\n)`)

// replaceRegions replaces the text of every generated region of a document. Each
// region must be there once.
func replaceRegions(text string, regions map[string]string) (string, error) {
	found := map[string]int{}
	text = region.ReplaceAllStringFunc(text, func(old string) string {
		m := region.FindStringSubmatch(old)
		found[m[2]]++
		return m[1] + "\n" + regions[m[2]] + "\n" + m[3]
	})
	for name := range regions {
		if found[name] != 1 {
			return "", fmt.Errorf("the generated region %q is there %d times, want once", name, found[name])
		}
	}
	if len(found) != len(regions) {
		return "", fmt.Errorf("generated regions %v, known are %d", found, len(regions))
	}
	return text, nil
}
