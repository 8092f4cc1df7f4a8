// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// fieldsOf returns the fields of a type that hold a value and no further fields.
// The values are their paths: "sharing.mps.perDevice[].device".
// "sharing.mps.perDevice[].device".
func (v vocabulary) fieldsOf(of reflect.Type, prefix string) []name {
	var found []name
	for i := range of.NumField() {
		field, inner := of.Field(i), of.Field(i).Type
		path, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if path == "" {
			continue
		}
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				path += "[]"
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[resource.Quantity]() {
			found = append(found, v.fieldsOf(inner, prefix+path+".")...)
			continue
		}
		n := v.fields[of.Name()+"."+field.Name]
		n.constant, n.value = of.Name()+"."+field.Name, prefix+path
		found = append(found, n)
	}
	return found
}
