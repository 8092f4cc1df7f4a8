// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
)

// Decode parses and validates the parameters of an opaque configuration, and sets
// defaults. The parameters are JSON as the API server stores it. It is strict: a
// field that would have no effect is an error, because its author expects one.
// GpuConfig and MigDeviceConfig of resource.nvidia.com/v1beta1 are converted. Every
// error names the path of the field and the values that it can have, and is one short
// line.
func Decode(parameters []byte) (Config, error) {
	if len(parameters) > resourceapi.OpaqueParametersMaxLength {
		return nil, fmt.Errorf("parameters: %d bytes, at most %d are allowed", len(parameters), resourceapi.OpaqueParametersMaxLength)
	}
	var meta metav1.TypeMeta
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(parameters, &meta); err != nil {
		return nil, fmt.Errorf("parameters: %s", readable(err, parameters))
	}
	into, unknown := newDocument(meta)
	if unknown != nil {
		return nil, fmt.Errorf("parameters: %w%s", unknown, hint(meta, parameters))
	}
	if err := unmarshal(parameters, into); err != nil {
		return nil, fmt.Errorf("%s: %w%s", meta.Kind, err, hint(meta, parameters))
	}
	var problems problems
	config := into.config(&problems)
	if err := problems.err(); err != nil {
		return nil, fmt.Errorf("%s: %w", meta.Kind, err)
	}
	return config, nil
}

// document is a configuration before conversion.
type document interface {
	// config returns the configuration, with defaults.
	config(*problems) Config
}

// newDocument returns an empty document of an apiVersion and kind.
func newDocument(meta metav1.TypeMeta) (document, *field.Error) {
	kinds := map[string]document{}
	switch meta.APIVersion {
	case GroupVersion:
		kinds[KindGpuConfig] = &gpuDocument{}
		kinds[KindMigConfig] = &migDocument{}
		kinds[KindShareConfig] = &shareDocument{}
	case nvidiaGroupVersion:
		if why, known := nvidiaUnserved(meta.Kind); known {
			return nil, field.Forbidden(field.NewPath("kind"), fmt.Sprintf("%s: %s", meta.Kind, why))
		}
		kinds[nvidiaKindGpuConfig] = &nvidiaGpuDocument{}
		kinds[KindMigDeviceConfig] = &nvidiaMigDocument{}
	default:
		return nil, field.NotSupported(field.NewPath("apiVersion"), short(meta.APIVersion), []string{GroupVersion, nvidiaGroupVersion})
	}
	into, known := kinds[meta.Kind]
	if !known {
		return nil, field.NotSupported(field.NewPath("kind"), short(meta.Kind), slices.Sorted(maps.Keys(kinds)))
	}
	return into, nil
}

// hint returns advice about parameters of our group that are written as NVIDIA's.
// NVIDIA's driver used our group's name before resource.nvidia.com.
func hint(meta metav1.TypeMeta, parameters []byte) string {
	if meta.APIVersion != GroupVersion {
		return ""
	}
	meta.APIVersion = nvidiaGroupVersion
	if into, unknown := newDocument(meta); unknown != nil || unmarshal(parameters, into) != nil {
		return ""
	}
	return "; NVIDIA's fields are valid under apiVersion: " + nvidiaGroupVersion + " only"
}

func unmarshal(parameters []byte, into document) error {
	unexpected, err := strictjson.UnmarshalStrict(parameters, into)
	if err != nil {
		return errors.New(readable(err, parameters))
	}
	if len(unexpected) == 0 {
		return nil
	}
	var texts []string
	for _, err := range unexpected {
		var at strictjson.FieldError
		if errors.As(err, &at) {
			at.SetFieldPath(short(at.FieldPath()))
		}
		texts = append(texts, err.Error())
	}
	return fmt.Errorf("%s; its fields are %s", firstOf(texts), describeFields(fieldsOf(reflect.TypeOf(into).Elem())))
}

// readable returns the text of an error in the terms of the document.
func readable(err error, parameters []byte) string {
	var mistyped *json.UnmarshalTypeError
	if !errors.As(err, &mistyped) {
		return err.Error()
	}
	at := "document"
	if mistyped.Field != "" {
		at = place(mistyped, parameters)
	}
	wanted := "an object"
	switch mistyped.Type.Kind() {
	case reflect.String:
		wanted = "a string"
	case reflect.Int:
		wanted = "a whole number"
	case reflect.Slice:
		wanted = "a list"
	case reflect.Bool:
		wanted = "true or false"
	default:
	}
	return fmt.Sprintf("%s: must be %s, not %s", short(at), wanted, short(mistyped.Value))
}

// place returns the path of a field of the wrong type. It adds the index in a list,
// which the decoder omits.
func place(mistyped *json.UnmarshalTypeError, parameters []byte) string {
	var document any
	if strictjson.UnmarshalCaseSensitivePreserveInts(parameters, &document) != nil {
		return mistyped.Field
	}
	wrong, _, _ := strings.Cut(mistyped.Value, " ")
	if at, found := find(document, strings.Split(mistyped.Field, "."), wrong); found {
		return strings.TrimPrefix(at, ".")
	}
	return mistyped.Field
}

// find returns the path of the first value of a JSON type at the fields. It
// searches all elements of the lists on the way.
func find(value any, fields []string, wrong string) (at string, found bool) {
	if list, ok := value.([]any); ok {
		for i, element := range list {
			if at, found := find(element, fields, wrong); found {
				return fmt.Sprintf("[%d]%s", i, at), true
			}
		}
	}
	if len(fields) == 0 {
		return "", typeOf(value) == wrong
	}
	object, _ := value.(map[string]any)
	at, found = find(object[fields[0]], fields[1:], wrong)
	return "." + fields[0] + at, found
}

// typeOf returns the decoder's name of a JSON type.
func typeOf(value any) string {
	switch value.(type) {
	case bool:
		return "bool"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case nil:
		return "null"
	default:
		return "number"
	}
}

// problems collects the errors of a document.
type problems struct{ list field.ErrorList }

func (p *problems) add(e *field.Error) { p.list = append(p.list, e) }

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	var texts []string
	for _, e := range p.list {
		texts = append(texts, e.Error())
	}
	return errors.New(firstOf(texts))
}

// firstOf joins the first few texts, so that the result fits an event.
func firstOf(texts []string) string {
	const most = 3
	if rest := len(texts) - most; rest > 0 {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(texts, "; ")
}

// short shortens a text that may be as long as the parameters.
func short(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
