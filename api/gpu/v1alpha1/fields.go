// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Field is a field of a configuration.
type Field struct {
	Name string
	// List reports whether the field is a list of objects with Fields.
	List bool
	// Map reports whether the field is an object whose keys are not fixed.
	Map bool
	// Fields are the fields of the object; nil if the field is not an object.
	Fields []Field
}

// Kinds returns the apiVersions and kinds that [Decode] accepts.
func Kinds() []metav1.TypeMeta {
	return []metav1.TypeMeta{
		typeMeta(KindGpuConfig), typeMeta(KindMigConfig), typeMeta(KindShareConfig),
		{APIVersion: nvidiaGroupVersion, Kind: nvidiaKindGpuConfig}, {APIVersion: nvidiaGroupVersion, Kind: KindMigDeviceConfig},
	}
}

// Fields returns the fields that [Decode] accepts in a configuration besides its
// apiVersion and kind. It returns nil if Decode does not accept the kind.
func Fields(kind metav1.TypeMeta) []Field {
	into, unknown := newDocument(kind)
	if unknown != nil {
		return nil
	}
	return fieldsOf(reflect.TypeOf(into).Elem())
}

func fieldsOf(structure reflect.Type) []Field {
	var fields []Field
	for i := range structure.NumField() {
		name, _, _ := strings.Cut(structure.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		field, inner := Field{Name: name}, structure.Field(i).Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			field.List = field.List || inner.Kind() == reflect.Slice
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() == reflect.Map:
			field.Map = true
		case inner.Kind() == reflect.Struct && inner != reflect.TypeFor[resource.Quantity]():
			field.Fields = fieldsOf(inner)
		}
		fields = append(fields, field)
	}
	return fields
}

// describeFields writes fields as in "sharing{strategy, mps{perDevice[]{device}}}".
func describeFields(fields []Field) string {
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = field.Name
		if field.List {
			texts[i] += "[]"
		}
		if field.Map || field.Fields != nil {
			texts[i] += "{" + describeFields(field.Fields) + "}"
		}
	}
	return strings.Join(texts, ", ")
}
