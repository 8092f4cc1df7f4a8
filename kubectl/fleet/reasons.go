// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Reasons returns why the device does not meet the request, a sentence for each missing
// condition. It returns none if the device meets the request.
func (f *Fleet) Reasons(a DeviceCheck, request resourceapi.ExactDeviceRequest) []string {
	var all []string
	for _, c := range a.Missing {
		switch c {
		case ConditionClass:
			all = append(all, "not of class "+request.DeviceClassName)
		case ConditionSelectors:
			for _, i := range a.Selectors {
				all = append(all, a.Device.selectorReason(request.Selectors[i].CEL.Expression))
			}
		case ConditionSize:
			all = append(all, a.Device.sizeReason(request.Capacity))
		case ConditionTaints:
			for _, taint := range a.Device.Published.Taints {
				text := "taint " + TaintText(taint)
				if c, ok := cause.Of(taint.Key, taint.Value); ok {
					text = c.Meaning + " (" + text + ")"
				}
				all = append(all, text)
			}
		case ConditionPool:
			all = append(all, a.Pool.Error())
		case ConditionConstraints:
		case ConditionHolders:
			all = append(all, f.heldReason(a.Device))
		}
	}
	return all
}

// TaintText returns a taint as kubectl writes it: "key=value:effect".
func TaintText(taint resourceapi.DeviceTaint) string {
	text := taint.Key
	if taint.Value != "" {
		text += "=" + taint.Value
	}
	return text + ":" + string(taint.Effect)
}

// CauseOf returns the cause of a taint of a device, in words for the device's GPU. ok is false if
// another party has set the taint.
func CauseOf(taint resourceapi.DeviceTaint, id DeviceID) (c cause.Cause, ok bool) {
	whole, address := id.Device, ""
	if name := NameOf(id.Device); name.OnGPU() {
		whole, address = kind.Whole(name.Address).String(), name.Address.String()
	}
	c, ok = cause.Of(taint.Key, taint.Value)
	return c.For(id.Pool, whole, address), ok
}

// RulesOf returns the names of the rules that set a taint of a device, sorted.
func RulesOf(rules []*resourceapi.DeviceTaintRule, id DeviceID, taint resourceapi.DeviceTaint) []string {
	var names []string
	for _, rule := range rules {
		if t := rule.Spec.Taint; concerns(rule, id) && t.Key == taint.Key && t.Value == taint.Value && t.Effect == taint.Effect {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (d Device) selectorReason(expression string) string {
	var here []string
	for _, name := range NamesIn(expression) {
		value, ok := d.value(name)
		if !ok {
			here = append(here, name.String()+" is absent")
			continue
		}
		here = append(here, name.ID+" is "+value)
	}
	if here == nil {
		return "the selector " + strconv.Quote(expression) + " does not select it"
	}
	return "the selector does not select it: " + strings.Join(here, ", ")
}

// value returns the attribute or the capacity of exactly that name, as text.
func (d Device) value(name Name) (string, bool) {
	if name.Capacity {
		for full, capacity := range d.Published.Capacity {
			if publishedName(d.ID.Driver, full, true) == name {
				return capacity.Value.String(), true
			}
		}
		return "", false
	}
	for full, attribute := range d.Published.Attributes {
		if publishedName(d.ID.Driver, full, false) == name {
			return ValueText(attribute), true
		}
	}
	return "", false
}

// ValueText returns the value of an attribute as text.
func ValueText(v resourceapi.DeviceAttribute) string {
	switch {
	case v.StringValue != nil:
		return *v.StringValue
	case v.VersionValue != nil:
		return *v.VersionValue
	case v.IntValue != nil:
		return strconv.FormatInt(*v.IntValue, 10)
	case v.BoolValue != nil:
		return strconv.FormatBool(*v.BoolValue)
	case v.IntValues != nil:
		return fmt.Sprint(v.IntValues)
	case v.BoolValues != nil:
		return fmt.Sprint(v.BoolValues)
	default:
		return strings.Join(slices.Concat(v.StringValues, v.VersionValues), ", ")
	}
}

func (d Device) sizeReason(wanted *resourceapi.CapacityRequirements) string {
	if wanted == nil {
		return "the amount is not one that it offers"
	}
	var short []string
	for _, name := range slices.Sorted(maps.Keys(wanted.Requests)) {
		want := wanted.Requests[name]
		has, ok := d.Published.Capacity[name]
		switch {
		case !ok:
			short = append(short, fmt.Sprintf("it has no capacity %q", name))
		case has.Value.Cmp(want) < 0:
			short = append(short, fmt.Sprintf("it has %s of %s, less than %s", d.amount(name, has.Value), name, d.amount(name, want)))
		}
	}
	if short == nil {
		return "the amount is not one that it offers"
	}
	return strings.Join(short, "; ")
}

// heldReason names the holders of the device, or of the rest of its GPU.
func (f *Fleet) heldReason(d Device) string {
	own := slices.DeleteFunc(slices.Clone(d.Holders), Holder.Admin)
	switch {
	case len(own) > 0 && own[0].Shared() && !d.takesAll(own[0]):
		left := d.left(own)
		return fmt.Sprintf("shared by %s; %s left", names(own), left)
	case len(own) > 0:
		return "held by " + names(own)
	}
	if name := NameOf(d.ID.Device); name.OnGPU() {
		var others []Holder
		for id, all := range f.holders {
			if id.Driver != d.ID.Driver || id.Pool != d.ID.Pool {
				continue
			}
			if other := NameOf(id.Device); other.OnGPU() && other.Address == name.Address {
				others = append(others, slices.DeleteFunc(slices.Clone(all), Holder.Admin)...)
			}
		}
		if len(others) > 0 {
			slices.SortFunc(others, func(a, b Holder) int { return ByName(a.Claim, b.Claim) })
			return "its GPU is used in another way by " + names(others)
		}
	}
	return "too little is free"
}

// left returns the free capacities of a shared device, as text.
func (d Device) left(own []Holder) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.Published.Capacity)) {
		rest := d.Published.Capacity[name].Value.DeepCopy()
		for _, h := range own {
			rest.Sub(h.Result.ConsumedCapacity[name])
		}
		all = append(all, fmt.Sprintf("%s %s", d.amount(name, rest), name))
	}
	return strings.Join(all, ", ")
}

// amount returns an amount of a capacity as text. Compute of GPUs is in percent.
func (d Device) amount(name resourceapi.QualifiedName, q resource.Quantity) string {
	if name == v1alpha1.CapacityCompute && NameOf(d.ID.Device).OnGPU() {
		return q.String() + "%"
	}
	return q.String()
}

// names returns the claims of the holders, with the pods that use them; at most three.
func names(all []Holder) string {
	var texts []string
	for _, h := range all {
		text := fmt.Sprintf("claim %s/%s", h.Claim.Namespace, h.Claim.Name)
		if len(h.Pods) > 0 {
			text += " of pod " + h.Pods[0].Name
		} else if groups := PodGroups(h.Claim); len(groups) > 0 {
			text += " of PodGroup " + groups[0]
		}
		AddOnce(&texts, text)
	}
	return List(3, texts)
}

// Values returns the values that the devices of a class have for a name. It also returns
// the number of devices for each value.
func (f *Fleet) Values(all []DeviceCheck, name Name) map[string]int {
	values := map[string]int{}
	for _, a := range all {
		if slices.Contains(a.Missing, ConditionClass) {
			continue
		}
		if value, ok := a.Device.value(name); ok {
			values[value]++
		}
	}
	return values
}
