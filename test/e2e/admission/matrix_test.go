// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// row is one row of the matrix: an object and the verdict on it. One of Parameters,
// Devices and Class is set.
type row struct {
	Case string `json:"case"`
	// Namespace is tenant by default.
	Namespace string `json:"namespace"`
	// Parameters of the driver, tried in a claim, a template and a class.
	Parameters map[string]any `json:"parameters"`
	// Devices of a claim, tried in a claim and a template.
	Devices map[string]any `json:"devices"`
	// Version of resource.k8s.io that Devices is written in; v1 by default.
	Version string `json:"version"`
	// Class is a DeviceClass: its metadata and spec.
	Class map[string]any `json:"class"`
	// Refused is part of the message; empty if the object is admitted.
	Refused string `json:"refused"`
}

// tried returns the objects of the row, by kind.
func (r row) tried(t *testing.T) map[string]*unstructured.Unstructured {
	namespace := r.Namespace
	if namespace == "" {
		namespace = tenant
	}
	class := func(given map[string]any) *unstructured.Unstructured {
		o := object("resource.k8s.io/v1", "DeviceClass", "", "tried")
		metadata, _ := given["metadata"].(map[string]any)
		for key, value := range metadata {
			must(t, unstructured.SetNestedField(o.Object, value, "metadata", key))
		}
		o.Object["spec"] = given["spec"]
		if o.Object["spec"] == nil {
			o.Object["spec"] = map[string]any{}
		}
		return o
	}
	switch {
	case r.Parameters != nil:
		config := []any{parameters(r.Parameters)}
		d := devices{"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{"deviceClassName": "unlabelled.example.com"}}}, "config": config}
		return map[string]*unstructured.Unstructured{
			"claim": claim(namespace, d), "template": template(namespace, d), "class": class(map[string]any{"spec": map[string]any{"config": config}}),
		}
	case r.Devices != nil:
		all := map[string]*unstructured.Unstructured{"claim": claim(namespace, r.Devices), "template": template(namespace, r.Devices)}
		if r.Version != "" {
			for _, o := range all {
				o.SetAPIVersion("resource.k8s.io/" + r.Version)
			}
		}
		return all
	case r.Class != nil:
		return map[string]*unstructured.Unstructured{"class": class(r.Class)}
	}
	t.Fatal("the row tries nothing")
	return nil
}

func TestTheMatrix(t *testing.T) {
	files, err := filepath.Glob("testdata/matrix/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no matrix", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			var rows []row
			must(t, yaml.UnmarshalStrict(text, &rows))
			for _, r := range rows {
				t.Run(r.Case, func(t *testing.T) { r.test(t) })
			}
		})
	}
}

func (r row) test(t *testing.T) {
	for kind, o := range r.tried(t) {
		said, err := refusal(world.try(t.Context(), o))
		switch {
		case err != nil:
			t.Errorf("%s: %v", kind, err)
		case r.Refused == "" && said != "":
			t.Errorf("the %s is refused: %s", kind, said)
		case r.Refused != "" && said == "":
			t.Errorf("the %s is admitted, want it refused with %q", kind, r.Refused)
		case !strings.Contains(said, r.Refused):
			t.Errorf("the %s is refused with\n%s\nwant in it\n%s", kind, said, r.Refused)
		}
	}
}
