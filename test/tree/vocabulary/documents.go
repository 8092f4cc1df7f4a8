// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// documents returns the generated regions of each document, by their names.
func (v vocabulary) documents() map[string]map[string]string {
	return map[string]map[string]string{
		"docs/user/attributes.md": {
			"types":      v.deviceTypes(),
			"attributes": v.publishedByDefault(),
			"further":    v.attributes(v.publishedAttributes(kind.LevelAll)),
			"capacities": v.table("capacity", "devices", withPrefix(v.names, "Capacity"), asList),
		},
		"docs/user/troubleshooting.md": {"taints": v.table("taint", "value", withPrefix(v.names, "Taint"), v.markdown)},
		"docs/user/claim-reference.md": {
			"configuration": v.configuration(),
			"status":        v.status(),
			"metadata":      v.metadata(),
			"environment":   v.environment(),
		},
		"docs/admin/causes.md": causesOf(),
		findingsDocument:       findings(),
		"docs/admin/names.md": {
			"labels":      v.table("label", "on", withPrefix(v.names, "Label"), v.markdown),
			"annotations": v.table("annotation", "on", withPrefix(v.names, "Annotation"), v.markdown),
		},
	}
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

// attributes returns the table of attributes.
func (v vocabulary) attributes(names []name) string {
	rows := [][]string{{"attribute", "type", "example", "meaning"}}
	for _, n := range names {
		of, example, _ := strings.Cut(n.detail, ": ")
		rows = append(rows, []string{code(n.value), of, code(example), v.markdown(n.meaning)})
	}
	return table(rows)
}

// publishedByDefault returns the table of the attributes of the level standard, and which ones the level
// lean has.
func (v vocabulary) publishedByDefault() string {
	lean, others := v.publishedAttributes(kind.LevelLean), v.publishedAttributes(kind.LevelStandard)
	return v.attributes(slices.Concat(lean, others)) + fmt.Sprintf("\nThe level `%s` ends before %s.\n", kind.LevelLean, code(others[0].value))
}

// metadata returns the table of the attributes that only containers have. One with the meaning of a
// field of the status refers to it.
func (v vocabulary) metadata() string {
	fields := map[string]string{}
	for _, n := range v.fieldsOf(reflect.TypeFor[v1alpha1.DeviceData](), "") {
		fields[ifAbsent.ReplaceAllString(n.meaning, "")] = n.value
	}
	names := slices.Clone(withPrefix(v.names, "Metadata"))
	for i, n := range names {
		if field := fields[n.meaning]; field != "" {
			names[i].meaning = `"` + field + `" of the status`
		}
	}
	return v.attributes(names)
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

// deviceTypes returns the table of the kinds of devices.
func (v vocabulary) deviceTypes() string {
	rows := [][]string{{"type", "meaning", "device", "offered by"}}
	for _, n := range withPrefix(v.names, "DeviceType") {
		offer := "always"
		if of := kind.Kind(n.value).Offer(); of != "" {
			offer = code(of)
		}
		rows = append(rows, []string{code(n.value), v.markdown(n.meaning), code(n.detail), offer})
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

func (v vocabulary) configuration() string {
	rows := [][]string{{"field", "values", "default", "meaning"}}
	for _, n := range v.configurationFields() {
		values, byDefault, _ := strings.Cut(n.detail, "; default: ")
		rows = append(rows, []string{code(n.value), v.markdown(values), v.markdown(byDefault), v.markdown(n.meaning)})
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

// ifAbsent matches the end of a comment that says when the field is absent.
var ifAbsent = regexp.MustCompile(`(; absent |\. It is absent ).*$`)

// status returns the table of the fields of a DeviceData. The page says once when fields are absent.
func (v vocabulary) status() string {
	rows := [][]string{{"field", "meaning"}}
	for _, n := range v.fieldsOf(reflect.TypeFor[v1alpha1.DeviceData](), "") {
		rows = append(rows, []string{code(n.value), v.markdown(ifAbsent.ReplaceAllString(n.meaning, ""))})
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
