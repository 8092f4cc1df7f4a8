// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// table is rows of cells below a heading. Cells of wide columns are printed on request.
type table struct {
	heading, wide []string
	rows          [][]string
}

// print writes items as JSON or YAML, or the table.
func (o *options) print(items any, t table) error {
	switch o.output {
	case "json":
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(items)
	case "yaml":
		text, err := yaml.Marshal(items)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(text)
		return err
	case "", "wide":
		return t.write(o.Out, o.output == "wide")
	default:
		return fmt.Errorf("--output %s: %w: want wide, json or yaml", o.output, gpu.ErrInvalid)
	}
}

func (t table) write(w io.Writer, wide bool) error {
	writer := printers.GetNewTabWriter(w)
	columns := len(t.heading)
	heading := t.heading
	if wide {
		columns += len(t.wide)
		heading = append(heading[:len(heading):len(heading)], t.wide...)
	}
	for _, row := range append([][]string{heading}, t.rows...) {
		if _, err := fmt.Fprintln(writer, strings.Join(row[:columns], "\t")); err != nil {
			return err
		}
	}
	return writer.Flush()
}

// bar draws how much of an amount is promised.
func bar(part, all float64) string {
	const width = 10
	if all <= 0 {
		return strings.Repeat("░", width)
	}
	n := int(part/all*width + 0.5)
	if part > 0 {
		n = max(n, 1)
	}
	n = min(n, width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// list returns the names as a text; the first ones and a number if they are many.
func list(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
