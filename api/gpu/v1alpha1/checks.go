// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	mebi          = 1 << 20
	memoryAllowed = "must be a whole number of Mi, at least 1Mi, such as 512Mi or 10Gi"
)

var (
	// quantityForm excludes exponents: parsing "1e-99999999" takes minutes.
	quantityForm = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?(Ki|Mi|Gi|Ti|k|M|G|T)?$`)
	deviceForm   = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
)

// amount is a quantity that is not parsed yet.
type amount string

// UnmarshalJSON accepts a string or a number.
func (a *amount) UnmarshalJSON(data []byte) error { return scalar(data, (*string)(a)) }

// UnmarshalJSON accepts a string or a number.
func (r *DeviceRef) UnmarshalJSON(data []byte) error { return scalar(data, (*string)(r)) }

func scalar(data []byte, into *string) error {
	switch c := data[0]; {
	case c == '-' || c >= '0' && c <= '9':
		*into = string(data)
		return nil
	case c == '"' || string(data) == "null":
		return json.Unmarshal(data, into)
	case c == '{':
		return &json.UnmarshalTypeError{Value: "object", Type: reflect.TypeFor[string]()}
	case c == '[':
		return &json.UnmarshalTypeError{Value: "array", Type: reflect.TypeFor[string]()}
	default:
		return &json.UnmarshalTypeError{Value: "bool", Type: reflect.TypeFor[string]()}
	}
}

func oneOf[T ~string](p *problems, path *field.Path, value T, allowed ...T) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	p.add(field.NotSupported(path, short(string(value)), allowed))
}

func (p *problems) between(path *field.Path, value, least, most int) {
	if value < least || value > most {
		p.add(field.Invalid(path, value, fmt.Sprintf("must be %d to %d", least, most)))
	}
}

// strategy returns the sharing of a strategy with its defaults, and rejects the
// section of the other strategy. timeSlicing and mps are the names of the sections.
func (p *problems) strategy(path *field.Path, strategy Strategy, timeSlicing string, hasTimeSlicing bool, mps string, hasMPS bool) *Sharing {
	sharing := &Sharing{Strategy: strategy}
	forbid := func(section string, written bool) {
		if written {
			p.add(field.Forbidden(path.Child(section), fmt.Sprintf("not with the strategy %s", strategy)))
		}
	}
	switch strategy {
	case StrategyTimeSlicing:
		sharing.TimeSlicing = &TimeSlicing{Interval: IntervalDefault}
		forbid(mps, hasMPS)
	case StrategyMPS:
		sharing.MPS = &MPS{}
		forbid(timeSlicing, hasTimeSlicing)
	case "":
		p.add(field.Required(path.Child("strategy"), fmt.Sprintf("say %s or %s", StrategyTimeSlicing, StrategyMPS)))
	case StrategyPlain:
		fallthrough
	default:
		oneOf(p, path.Child("strategy"), strategy, StrategyTimeSlicing, StrategyMPS)
	}
	return sharing
}

func (p *problems) threads(path *field.Path, percentage *int) *int {
	if percentage != nil {
		p.between(path, *percentage, 1, 100)
	}
	return percentage
}

func (p *problems) device(path *field.Path, ref DeviceRef) {
	const allowed = "must be the index of a device, counted from 0, or its UUID"
	switch {
	case ref == "":
		p.add(field.Required(path, allowed))
	case !deviceForm.MatchString(string(ref)):
		p.add(field.Invalid(path, short(string(ref)), allowed))
	}
}

// quantity returns the parsed amount, or 0 if it does not match the form.
func (a amount) quantity(form *regexp.Regexp) resource.Quantity {
	if !form.MatchString(string(a)) {
		return resource.Quantity{}
	}
	// The quantity stays 0 if parsing fails.
	quantity, _ := resource.ParseQuantity(string(a))
	return quantity
}

func (p *problems) memory(path *field.Path, a amount) resource.Quantity {
	quantity := a.quantity(quantityForm)
	// The value is rounded up.
	whole := resource.NewQuantity(quantity.Value()/mebi*mebi, resource.BinarySI)
	if whole.IsZero() || quantity.Cmp(*whole) != 0 {
		p.add(field.Invalid(path, short(string(a)), memoryAllowed))
	}
	return quantity
}
