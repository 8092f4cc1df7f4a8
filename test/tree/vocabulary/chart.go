// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const chartFile = "deployments/helm/gpu-dra-driver/templates/_vocabulary.tpl"

// chart returns the tables of the admission policies, in CEL, as helm templates.
func (v vocabulary) chart() string {
	var out strings.Builder
	out.WriteString("{{/* Code generated from api/gpu/v1alpha1 by make generate. DO NOT EDIT. */}}\n")
	define := func(template, comment, text string) {
		fmt.Fprintf(&out, "\n{{/* %s */}}\n{{- define \"gpu-dra-driver.%s\" -}}\n%s\n{{- end -}}\n", comment, template, text)
	}
	define("kindsOfType", "The kinds of parameters that a class of each type can have.", byType(func(k kind.Kind) []string {
		var kinds []string
		for _, accepted := range configurationKinds() {
			if own := ourKind(accepted); k.Accepts(own, false) || k.Accepts(own, true) {
				kinds = append(kinds, accepted)
			}
		}
		return kinds
	}))
	define("strategiesOfType", "The strategies that a class of each type can have.", byType(func(k kind.Kind) []string { return texts(k.Strategies()) }))
	define("capacitiesOfType", "The capacities of the devices of each type.", byType(v.capacitiesOf))
	define("capacitiesInWords", "The same in a sentence.", capacitiesInWords())
	define("kinds", "All kinds of parameters.", list(configurationKinds()))
	var strategies []string
	for _, k := range kind.All() {
		strategies = append(strategies, texts(k.Strategies())...)
	}
	slices.Sort(strategies)
	define("strategies", "All strategies.", list(slices.Compact(strategies)))
	var sized []string
	for _, k := range kind.All() {
		if slices.Contains(v.capacitiesOf(k), v1alpha1.CapacityMemory) {
			sized = append(sized, string(k))
		}
	}
	define("typesWithMemory", "The types of devices of which requests name memory.", list(sized))
	define("typesWithMemoryInWords", "The same in a sentence.", inWords(sized))
	define("types", "All types of devices.", list(texts(kind.All())))
	define("typesInWords", "The same in a sentence.", inWords(texts(kind.All())))
	define("devices", "The types of devices in JSON: the comment above the DeviceClass, if deviceclasses.yaml makes it, the word of the offer, the value with the number of units, and its flag.", devices())
	define("group", "The API group, which begins the names of labels.", v1alpha1.GroupName)
	define("labelNames", "The names of the labels, in JSON.", v.labelNames())
	define("viewerAccount", "The annotation with the viewers' account.", v1alpha1.AnnotationViewerAccount)
	define("driverNamespace", "The annotation with the namespace of the driver.", v1alpha1.AnnotationDriverNamespace)
	var labels []string
	for _, n := range withPrefix(v.names, "Label") {
		if n.detail == "DeviceClass" {
			labels = append(labels, strings.TrimPrefix(n.value, v1alpha1.GroupName+"/"))
		}
	}
	define("classLabelNames", "The labels of a class, after the name of the group.", list(labels))
	define("intervals", "The intervals of time slices, separated by commas.", strings.Trim(list(texts(v1alpha1.Intervals())), "[]"))
	define("intervalsInWords", "The same in a sentence.", inWords(texts(v1alpha1.Intervals())))
	define("maxProcesses", "The most processes of a share.", strconv.Itoa(v1alpha1.MaxProcesses))
	define("maxContainers", "The most containers of a share.", strconv.Itoa(v1alpha1.MaxContainers))
	define("fieldsOfKinds", "The fields of each kind of parameters, by section.", fieldsOfKinds())
	return out.String()
}

// labelNames returns a JSON object from the constants of the labels, without "Label",
// to their names.
func (v vocabulary) labelNames() string {
	var entries []string
	for _, n := range withPrefix(v.names, "Label") {
		key := strings.TrimPrefix(n.constant, "Label")
		entries = append(entries, fmt.Sprintf("%q: %q", strings.ToLower(key[:1])+key[1:], n.value))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// configurationKinds returns the names of the kinds that [v1alpha1.Decode] accepts,
// sorted.
func configurationKinds() []string {
	var kinds []string
	for _, k := range v1alpha1.Kinds() {
		kinds = append(kinds, k.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// ourKind returns the kind of our group that a kind is converted to.
func ourKind(accepted string) string {
	if accepted == v1alpha1.KindMigDeviceConfig {
		return v1alpha1.KindMigConfig
	}
	return accepted
}

// capacitiesInWords says which capacities requests name of each type.
func capacitiesInWords() string {
	var words []string
	for _, k := range kind.All() {
		if capacities := k.Class().Capacities; capacities != "" {
			words = append(words, capacities)
		}
	}
	return strings.Join(words, ", ")
}

// devices returns a JSON list of the types.
func devices() string {
	type device struct {
		Type     kind.Kind `json:"type"`
		Comment  string    `json:"comment"`
		NeedsMPS bool      `json:"needsMPS"`
		Offer    string    `json:"offer"`
		Units    string    `json:"units"`
		Flag     string    `json:"flag"`
	}
	var all []string
	for _, k := range kind.All() {
		entry, err := json.Marshal(device{k, k.Class().Comment, k.NeedsMPS(), k.Offer(), string(k.Units().Capacity), k.Units().Flag})
		if err != nil {
			panic(err) // strings and a bool
		}
		all = append(all, string(entry))
	}
	return "[\n" + strings.Join(all, ",\n") + "\n]"
}

// byType returns a CEL map from the device types to lists. Types with an empty list
// are left out.
func byType(of func(kind.Kind) []string) string {
	var entries []string
	for _, k := range kind.All() {
		if values := of(k); len(values) > 0 {
			entries = append(entries, quote(string(k))+": "+list(values))
		}
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = string(value)
	}
	return all
}

// list returns a CEL list of strings.
func list(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = quote(value)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// inWords returns a list of words as in "one, two or three".
func inWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func quote(text string) string { return "'" + text + "'" }

// fieldsOfKinds returns a CEL map from the kinds to their sections and the names of
// the sections' fields. The document itself is the section "document".
func fieldsOfKinds() string {
	var kinds []string
	for _, k := range v1alpha1.Kinds() {
		fields := append([]v1alpha1.Field{{Name: "apiVersion"}, {Name: "kind"}}, v1alpha1.Fields(k)...)
		kinds = append(kinds, fmt.Sprintf("  %s: {\n%s\n  }", quote(k.APIVersion+" "+k.Kind), strings.Join(sections("document", fields), ",\n")))
	}
	return "{\n" + strings.Join(kinds, ",\n") + "\n}"
}

// sections returns the CEL entries of a section and of those within it.
func sections(section string, fields []v1alpha1.Field) []string {
	var names, inner []string
	for _, field := range fields {
		names = append(names, field.Name)
		if field.Fields != nil {
			inner = append(inner, sections(field.Name, field.Fields)...)
		}
	}
	return append([]string{"    " + quote(section) + ": " + list(names)}, inner...)
}
