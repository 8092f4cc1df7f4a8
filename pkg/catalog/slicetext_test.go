// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	resourceapi "k8s.io/api/resource/v1"
)

// words are the words that render a device, by the field that each word renders.
type words map[string]string

// slicesText renders ResourceSlices with one line for each device:
//
//	slice JSON       a slice without its devices and counter sets
//	counters NAMES:  counter sets with equal counters
//	each KIND:       the words that more than half of the devices of the kind share
//	DEVICE:          the device's further words; "no X" if it lacks a shared one
//
// The word of an attribute is NAME=VALUE with quotes around text and v before a
// version; that of a capacity is NAME:VALUE with the request policy in brackets.
// "uses" are counters of the GPU that the device's name begins with, and @gpu is the
// UUID of that GPU. Any other field of the API is .NAME=JSON, so that no two lists
// of slices have the same text.
func slicesText(written []resourceapi.ResourceSlice) string {
	uuids := map[string]string{}
	for device := range allDevices(written) {
		if uuid := device.Attributes["uuid"].StringValue; uuid != nil {
			uuids[device.Name] = *uuid
		}
	}
	kinds := map[string][]words{}
	for device := range allDevices(written) {
		kinds[typeAndProfile(device)] = append(kinds[typeAndProfile(device)], deviceWords(device, uuids))
	}
	var b strings.Builder
	shared := map[string]words{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if shared[kind] = majority(kinds[kind]); len(shared[kind]) > 0 {
			fmt.Fprintf(&b, "each %s: %s\n", kind, joined(shared[kind]))
		}
	}
	for _, slice := range written {
		head := slice.DeepCopy()
		head.Spec.Devices, head.Spec.SharedCounters = nil, nil
		fmt.Fprintf(&b, "slice %s\n", compactJSON(head))
		b.WriteString(counterSets(slice.Spec.SharedCounters))
		for _, device := range slice.Spec.Devices {
			own := deviceWords(device, uuids)
			for field, word := range shared[typeAndProfile(device)] {
				switch own[field] {
				case word:
					delete(own, field)
				case "":
					own[field] = "no " + field
				}
			}
			b.WriteString(strings.TrimSpace(device.Name+": "+joined(own)) + "\n")
		}
	}
	return b.String()
}

func allDevices(written []resourceapi.ResourceSlice) func(yield func(resourceapi.Device) bool) {
	return func(yield func(resourceapi.Device) bool) {
		for _, slice := range written {
			for _, device := range slice.Spec.Devices {
				if !yield(device) {
					return
				}
			}
		}
	}
}

// typeAndProfile returns the device's type and MIG profile.
func typeAndProfile(device resourceapi.Device) string {
	var kind []string
	for _, name := range []resourceapi.QualifiedName{"type", "profile"} {
		if value := device.Attributes[name].StringValue; value != nil {
			kind = append(kind, *value)
		}
	}
	return strings.Join(kind, " ")
}

func deviceWords(device resourceapi.Device, uuids map[string]string) words {
	w := words{}
	gpu, _, _ := strings.Cut(strings.TrimSuffix(device.Name, "-ts"), "-mig-")
	for name, a := range device.Attributes {
		w[string(name)] = attributeWord(string(name), a)
		if a.StringValue != nil && name == "parentUUID" && *a.StringValue == uuids[gpu] {
			w[string(name)] = "parentUUID=@gpu"
		}
	}
	for name, c := range device.Capacity {
		w[string(name)+":"] = string(name) + ":" + c.Value.String() + policyWord(c.RequestPolicy)
	}
	for i, c := range device.ConsumesCounters {
		where := strconv.Quote(c.CounterSet)
		if "gpu-"+c.CounterSet == gpu {
			where = ""
		}
		w[fmt.Sprint("uses ", i)] = fmt.Sprintf("uses %s(%s)", where, countersText(c.Counters))
		for name, value := range fields(c, "counterSet", "counters") {
			w[fmt.Sprint("uses ", i, ".", name)] = "." + name + "=" + value
		}
	}
	device.Attributes, device.Capacity, device.ConsumesCounters = nil, nil, nil
	for name, value := range fields(device, "name") {
		w["."+name] = "." + name + "=" + value
	}
	return w
}

func attributeWord(name string, a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil && reflect.DeepEqual(a, resourceapi.DeviceAttribute{StringValue: a.StringValue}):
		return name + "=" + strconv.Quote(*a.StringValue)
	case a.VersionValue != nil && reflect.DeepEqual(a, resourceapi.DeviceAttribute{VersionValue: a.VersionValue}):
		return name + "=v" + *a.VersionValue
	case a.IntValue != nil && reflect.DeepEqual(a, resourceapi.DeviceAttribute{IntValue: a.IntValue}):
		return fmt.Sprint(name, "=", *a.IntValue)
	case a.BoolValue != nil && reflect.DeepEqual(a, resourceapi.DeviceAttribute{BoolValue: a.BoolValue}):
		return fmt.Sprint(name, "=", *a.BoolValue)
	default:
		return name + "=" + compactJSON(a)
	}
}

// policyWord renders a request policy. One with a default and a range that has no end
// is "(from MIN in steps of STEP, else DEFAULT)".
func policyWord(policy *resourceapi.CapacityRequestPolicy) string {
	if policy == nil {
		return ""
	}
	r := policy.ValidRange
	if policy.Default == nil || policy.ValidValues != nil || r == nil || r.Min == nil || r.Max != nil {
		return compactJSON(policy)
	}
	if r.Step == nil {
		return fmt.Sprintf("(from %s, else %s)", r.Min, policy.Default)
	}
	return fmt.Sprintf("(from %s in steps of %s, else %s)", r.Min, r.Step, policy.Default)
}

// counterSets renders counter sets. Consecutive sets with equal counters are on one
// line.
func counterSets(sets []resourceapi.CounterSet) string {
	var lines []string
	for i, set := range sets {
		counters := countersText(set.Counters)
		if i > 0 && countersText(sets[i-1].Counters) == counters {
			lines[len(lines)-1] = strings.Replace(lines[len(lines)-1], ":", " "+set.Name+":", 1)
		} else {
			lines = append(lines, fmt.Sprintf("counters %s: %s\n", set.Name, counters))
		}
	}
	return strings.Join(lines, "")
}

func countersText(counters map[string]resourceapi.Counter) string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		c := counters[name]
		values = append(values, name+"="+c.Value.String())
	}
	return strings.Join(values, " ")
}

// majority returns the words that more than half of the devices have, if there are
// at least two.
func majority(all []words) words {
	counts := map[[2]string]int{}
	for _, w := range all {
		for field, word := range w {
			counts[[2]string{field, word}]++
		}
	}
	shared := words{}
	for key, count := range counts {
		if 2*count > len(all) && len(all) > 1 {
			shared[key[0]] = key[1]
		}
	}
	return shared
}

func joined(w words) string {
	var sorted []string
	for _, field := range slices.Sorted(maps.Keys(w)) {
		sorted = append(sorted, w[field])
	}
	return strings.Join(sorted, " ")
}

// fields returns the JSON of each field of a value except the omitted ones.
func fields(value any, omitted ...string) map[string]string {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(compactJSON(value)), &all); err != nil {
		panic(err)
	}
	texts := map[string]string{}
	for name, text := range all {
		if !slices.Contains(omitted, name) {
			texts[name] = string(text)
		}
	}
	return texts
}

func compactJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	gpuNames     = regexp.MustCompile(`(?m)^gpu-(\S\S-\S\S):`)
	profileNames = regexp.MustCompile(`(?m)^each mig (\S+):`)
)

// difference returns a unified diff from the text of a base to another one. GPUs and
// MIG profiles of the base are renamed first to those of the other in the same
// place if both have equally many; the head of the diff lists the renames.
func difference(t *testing.T, base, baseText, text string) string {
	t.Helper()
	head := base
	var renames []string
	rename := func(from, to string) {
		if from != to {
			renames = append(renames, from, to)
			head += fmt.Sprintf(", %s is %s", from, to)
		}
	}
	for _, names := range []*regexp.Regexp{gpuNames, profileNames} {
		from, to := names.FindAllStringSubmatch(baseText, -1), names.FindAllStringSubmatch(text, -1)
		for i := range from {
			if len(from) == len(to) {
				rename(from[i][1], to[i][1])
			}
		}
	}
	inNames := strings.NewReplacer(".", "-", "+", "-")
	for i := 0; i < len(renames); i += 2 {
		if strings.Contains(renames[i], ".") {
			rename(inNames.Replace(renames[i]), inNames.Replace(renames[i+1]))
		}
	}
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: strings.SplitAfter(strings.NewReplacer(renames...).Replace(baseText), "\n"), FromFile: head,
		B: strings.SplitAfter(text, "\n"), ToFile: "here",
	})
	must(t, err)
	return diff
}
