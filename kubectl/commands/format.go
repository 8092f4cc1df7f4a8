// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// listVersion is the version of the lists that commands print as JSON and YAML. The types of
// their items are in kubectl/rows.
const listVersion = "kubectl.gpu.nvidia.com/v1alpha1"

// list is rows in JSON and YAML.
type list struct {
	header
	// Partial is true if the user may not read all claims and pods.
	Partial bool `json:"partial,omitempty"`
	Items   any  `json:"items"`
}

// header is the first fields of an object in JSON and YAML.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func headerOf(kind string) header { return header{listVersion, kind} }

// emptyError is the sentence instead of an empty table.
type emptyError string

func (e emptyError) Error() string { return string(e) }

// formats are the output formats, for help and errors.
const formats = "wide, json, yaml or jsonpath=TEMPLATE"

// checkOutput returns an error if --output is not a format. It is called before the cluster is
// read.
func (o *options) checkOutput() error {
	format, argument, _ := strings.Cut(o.output, "=")
	var err error
	switch format {
	case "jsonpath":
		_, err = parsed(argument)
	case "", "wide", "json", "yaml":
	default:
		return fmt.Errorf("--output %s: %w: want %s", o.output, gpu.ErrInvalid, formats)
	}
	if err != nil {
		return fmt.Errorf("--output %s: %w: %w", o.output, gpu.ErrInvalid, err)
	}
	return nil
}

// isTable reports whether rows are printed as lines. Other formats have empty lists.
func (o *options) isTable() bool {
	return o.output == "" || o.output == "wide"
}

// printList prints rows as a list of the kind, in the requested order and format. The table
// has a row for each. Instead of an empty table it returns an error with the sentence.
func printList[T any](o *options, kind string, items []T, t rows.Table, empty string) error {
	if len(items) == 0 && o.isTable() {
		return emptyError(empty)
	}
	order, err := t.Order(o.sortBy, false)
	if err != nil {
		return fmt.Errorf("--sort-by %s: %w", o.sortBy, err)
	}
	sorted := []T{}
	for _, i := range order {
		sorted = append(sorted, items[i])
	}
	return o.print(list{headerOf(kind), o.partial, sorted}, t.Reordered(order))
}

// printValue writes a value as JSON or YAML, or parts of it.
func (o *options) printValue(value any) error {
	format, argument, _ := strings.Cut(o.output, "=")
	switch format {
	case "json":
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(text)
		return err
	default: // jsonpath: [options.checkOutput] refuses others
		content, err := generic(value)
		if err != nil {
			return err
		}
		text, err := extract(argument, content)
		if err != nil {
			return fmt.Errorf("--output %s: %w: %w", o.output, gpu.ErrInvalid, err)
		}
		_, err = o.Out.Write(text)
		return err
	}
}

// generic returns a value as maps and lists, with the names of its JSON. Each text is in one
// line, so that it cannot add lines to the output of a template.
func generic(value any) (content any, err error) {
	text, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(text, &content)
	}
	return inLines(content), err
}

func inLines(content any) any {
	switch c := content.(type) {
	case string:
		return plain.Line(c)
	case []any:
		for i := range c {
			c[i] = inLines(c[i])
		}
	case map[string]any:
		for name := range c {
			c[name] = inLines(c[name])
		}
	}
	return content
}

// parsed returns a JSONPath template. Braces around a single path can be left out.
func parsed(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(template)
}

// extract returns the parts of the content that a JSONPath template selects.
func extract(template string, content any) ([]byte, error) {
	path, err := parsed(template)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = path.Execute(&text, content)
	return text.Bytes(), err
}
