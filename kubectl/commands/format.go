// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// list is rows in JSON and YAML. The types of the items are in kubectl/rows.
type list struct {
	rows.Header
	// Partial is true if the user may not read all claims and pods.
	Partial bool `json:"partial,omitempty"`
	Items   any  `json:"items"`
}

// emptyError is the sentence instead of an empty table.
type emptyError string

func (e emptyError) Error() string { return string(e) }

// formats are the output formats, for help and errors.
const formats = "wide, json, yaml or jsonpath=TEMPLATE"

// checkOutput returns an error if --output is not a format, and keeps its template. It is called
// before the cluster is read.
func (o *options) checkOutput() error {
	format, template, _ := strings.Cut(o.output, "=")
	switch {
	case o.isTable(), o.output == "json", o.output == "yaml":
		return nil
	case format != "jsonpath":
		return fmt.Errorf("--output %s: %w: want %s", o.output, gpu.ErrInvalid, formats)
	}
	var err error
	if o.template, err = parsed(template); err != nil {
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
	return o.print(list{rows.HeaderOf(kind), o.partial, sorted}, t.Reordered(order))
}

// printSections prints an object as its sections, or in another format.
func (o *options) printSections(object any, sections []rows.Section) error {
	if !o.isTable() {
		return o.printValue(object)
	}
	_, err := io.WriteString(o.Out, textOf(sections))
	return err
}

// printValue writes a value as JSON or YAML, or parts of it.
func (o *options) printValue(value any) error {
	switch o.output {
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
	default: // a template: [options.checkOutput] refuses others
		content, err := generic(value)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := o.template.Execute(&text, content); err != nil {
			return fmt.Errorf("--output %s: %w: %w", o.output, gpu.ErrInvalid, err)
		}
		_, err = o.Out.Write(text.Bytes())
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
