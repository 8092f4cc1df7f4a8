// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// documents returns the generated regions of each document, by their names.
func (v vocabulary) documents() map[string]map[string]string {
	all := map[string]map[string]string{
		"docs/user/attributes.md": {
			"attributes": v.attributes(v.publishedAttributes(kind.LevelLean), v.publishedAttributes(kind.LevelStandard)),
			"further":    v.attributes(v.publishedAttributes(kind.LevelAll)),
		},
		"docs/user/capacities.md": {"capacities": v.table("capacity", "devices", withPrefix(v.names, "Capacity"), asList)},
		"docs/user/taints.md":     {"taints": v.table("taint", "value", withPrefix(v.names, "Taint"), v.markdown)},
		"docs/user/claim-reference.md": {
			"types":         v.deviceTypes(),
			"kinds":         v.kinds(),
			"configuration": v.configuration(),
		},
		"docs/user/container-reference.md": {
			"status":      v.status(),
			"metadata":    v.attributes(withPrefix(v.names, "Metadata")),
			"environment": v.environment(),
		},
		"docs/admin/names.md": {
			"labels":      v.table("label", "on", withPrefix(v.names, "Label"), v.markdown),
			"taints":      v.taints(),
			"annotations": v.table("annotation", "on", withPrefix(v.names, "Annotation"), v.markdown),
		},
	}
	ofCauses, ofFindings := documentsOf()
	for _, document := range ofCauses {
		all[document] = causesOf(document)
	}
	for _, document := range ofFindings {
		all[document] = map[string]string{"findings": findingsOf(document)}
	}
	return all
}

// publishedAttributes returns the attributes that a level adds to the one before.
func (v vocabulary) publishedAttributes(level kind.Level) []name {
	return slices.DeleteFunc(slices.Concat(withPrefix(v.names, "Attribute"), standardAttributes()), func(n name) bool {
		own, _ := kind.LevelOf(resourceapi.QualifiedName(n.value))
		return own != level
	})
}

// standardAttributes returns the attributes that Kubernetes names and the driver
// publishes.
func standardAttributes() []name {
	return []name{
		{value: string(deviceattribute.StandardDeviceAttributePCIBusID), meaning: "the PCI address", detail: "string: 0000:1b:00.0"},
		{value: string(deviceattribute.StandardDeviceAttributePCIeRoot), meaning: "the PCIe root; matches NICs and other devices on the same root", detail: "string: pci0000:15"},
		{value: string(deviceattribute.StandardDeviceAttributeNUMANode), meaning: "the NUMA node whose CPUs are nearest; the only one of a machine with one; with --list-attributes a list of it and the nearest other nodes of its socket", detail: "int: 0"},
	}
}

// attributes returns the table of attributes. With several groups it says which ones are in
// the first, the level lean.
func (v vocabulary) attributes(groups ...[]name) string {
	rows := [][]string{{"attribute", "type", "example", "meaning"}}
	if len(groups) > 1 {
		rows[0] = append(rows[0], "lean")
	}
	for i, names := range groups {
		for _, n := range names {
			of, example, _ := strings.Cut(n.detail, ": ")
			row := []string{code(n.value), of, code(example), v.markdown(n.meaning)}
			if len(groups) > 1 {
				row = append(row, map[bool]string{true: "yes"}[i == 0])
			}
			rows = append(rows, row)
		}
	}
	return table(rows)
}

// environment returns the table of environment variables, each with the GPU 1b-00.
func (v vocabulary) environment() string {
	rows := [][]string{{"variable", "example", "meaning"}}
	for _, n := range withPrefix(v.names, "Environment") {
		rows = append(rows, []string{code(n.value + "_1B_00"), code(n.detail), v.markdown(n.meaning)})
	}
	return table(rows)
}

// table returns a table of names, what the comment behind each says, and their
// meaning.
func (v vocabulary) table(head, detail string, names []name, format func(string) string) string {
	rows := [][]string{{head, detail, "meaning"}}
	for _, n := range names {
		rows = append(rows, []string{code(n.value), format(n.detail), v.markdown(n.meaning)})
	}
	return table(rows)
}

// taints returns the table of the taints and their values only.
func (v vocabulary) taints() string {
	rows := [][]string{{"taint", "value"}}
	for _, n := range withPrefix(v.names, "Taint") {
		rows = append(rows, []string{code(n.value), v.markdown(n.detail)})
	}
	return table(rows)
}

// deviceTypes returns the table of the kinds of devices.
func (v vocabulary) deviceTypes() string {
	rows := [][]string{{"type", "meaning", "device", "offered by", "capacities"}}
	for _, n := range withPrefix(v.names, "DeviceType") {
		k := kind.Kind(n.value)
		offer, capacities := "always", "none"
		if k.Offer() != "" {
			offer = code(k.Offer())
		}
		if names := v.capacitiesOf(k); len(names) > 0 {
			capacities = asList(strings.Join(names, ", "))
		}
		rows = append(rows, []string{code(n.value), v.markdown(n.meaning), code(n.detail), offer, capacities})
	}
	return table(rows)
}

// capacitiesOf returns the capacities of the devices of a kind.
func (v vocabulary) capacitiesOf(k kind.Kind) []string {
	var capacities []string
	for _, n := range withPrefix(v.names, "Capacity") {
		if slices.Contains(strings.Split(n.detail, ", "), string(k)) {
			capacities = append(capacities, n.value)
		}
	}
	return capacities
}

// configurations are the kinds of configuration of our group, in the order of the
// documents.
var configurations = []reflect.Type{reflect.TypeFor[v1alpha1.GpuConfig](), reflect.TypeFor[v1alpha1.MigConfig](), reflect.TypeFor[v1alpha1.ShareConfig]()}

func (v vocabulary) kinds() string {
	rows := [][]string{{"kind", "configures", "fields"}}
	for _, of := range configurations {
		var fields []string
		for _, field := range v1alpha1.Fields(metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: of.Name()}) {
			fields = append(fields, field.Name)
		}
		comment, _, _ := strings.Cut(v.types[of.Name()], "\n\n")
		text := strings.TrimPrefix(meaning(of.Name(), comment), of.Name()+" configures ")
		rows = append(rows, []string{code(of.Name()), v.markdown(text), asList(strings.Join(fields, ", "))})
	}
	return table(rows)
}

func (v vocabulary) configuration() string {
	rows := [][]string{{"field", "values", "default", "meaning"}}
	for _, n := range v.configurationFields() {
		values, ifAbsent, _ := strings.Cut(n.detail, "; default: ")
		rows = append(rows, []string{code(n.value), v.markdown(values), v.markdown(ifAbsent), v.markdown(n.meaning)})
	}
	return table(rows)
}

// configurationFields returns the fields of all kinds, each path once.
func (v vocabulary) configurationFields() []name {
	var fields []name
	for _, of := range configurations {
		for _, n := range v.fieldsOf(of, "") {
			if !slices.ContainsFunc(fields, func(other name) bool { return other.value == n.value }) {
				fields = append(fields, n)
			}
		}
	}
	return fields
}

func (v vocabulary) status() string {
	rows := [][]string{{"field", "meaning"}}
	for _, n := range v.fieldsOf(reflect.TypeFor[v1alpha1.DeviceData](), "") {
		rows = append(rows, []string{code(n.value), v.markdown(n.meaning)})
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

// asList sets each word of a list as code.
func asList(words string) string {
	if words == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(words, ", ", "`, `") + "`"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

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
