// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const root = "../../.."

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate(root)
	must(t, err)
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		must(t, err)
		require.Same(t, path+" is stale, run make generate", want, string(got))
	}
}

// Documents and tables show the comments, so each constant needs its own comment.
func TestEveryPublicNameIsExplained(t *testing.T) {
	v := read(t)
	if len(v.names) < 50 {
		t.Fatalf("%s has only %d constants", namesFile, len(v.names))
	}
	for _, prefix := range []string{"DeviceType", "Attribute", "Metadata", "Capacity", "Taint", "Label", "Annotation"} {
		for _, n := range withPrefix(v.names, prefix) {
			if n.meaning == "" || strings.Contains(n.meaning, n.constant) {
				t.Errorf("%s: the comment must begin with its name and \"is\", \"says\" or \"marks\"; it is %q", n.constant, n.meaning)
			}
			if n.detail == "" {
				t.Errorf("%s: the comment behind it must say its type, device, value or object", n.constant)
			}
		}
	}
}

func TestEveryPublicFieldIsExplained(t *testing.T) {
	v := read(t)
	for _, n := range v.configurationFields() {
		if n.meaning == "" || n.detail == "" {
			t.Errorf("%s (%s): the comments must say what it is, and behind it which values it has; they are %q and %q", n.constant, n.value, n.meaning, n.detail)
		}
	}
	for _, n := range v.fieldsOf(reflect.TypeFor[v1alpha1.DeviceData](), "") {
		if n.meaning == "" {
			t.Errorf("%s (%s) has no comment", n.constant, n.value)
		}
	}
}

func TestTheChartTakesNamesFromTheVocabulary(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, filepath.Dir(chartFile), "*.*"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	var names []name
	for _, prefix := range []string{"Taint", "Label", "Annotation"} {
		names = append(names, withPrefix(read(t).names, prefix)...)
	}
	for _, file := range files {
		if file == filepath.Join(root, chartFile) {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			for _, n := range names {
				if strings.Contains(line, n.value) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
					t.Errorf("%s contains %s; take it from %s: %s", file, n.value, filepath.Base(chartFile), line)
				}
			}
		}
	}
}

func TestEveryAttributeIsOfALevel(t *testing.T) {
	v := read(t)
	for _, n := range append(withPrefix(v.names, "Attribute"), standardAttributes()...) {
		if _, known := kind.LevelOf(resourceapi.QualifiedName(n.value)); !known {
			t.Errorf("%s must be in one of the levels of pkg/gpu/kind/selection.go", n.value)
		}
	}
}

// Helm refuses a wrong name before it reaches the nodes.
func TestTheChartsSchemaKnowsEveryAttribute(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deployments/helm/gpu-dra-driver/values.schema.json"))
	must(t, err)
	var schema struct {
		Properties struct {
			Attributes struct {
				OneOf []struct {
					Enum  []string
					Items struct{ Enum []string }
				}
			}
		}
	}
	must(t, json.Unmarshal(text, &schema))
	var names []string
	for _, form := range schema.Properties.Attributes.OneOf {
		names = append(names, form.Items.Enum...)
	}
	want := append([]string{"lean", "standard", "all"}, kind.AttributeNames()...)
	require.Same(t, "names of the value attributes", want, names)
}

func read(t *testing.T) vocabulary {
	t.Helper()
	v, err := readVocabulary(root)
	must(t, err)
	return v
}

var must = require.NoError
