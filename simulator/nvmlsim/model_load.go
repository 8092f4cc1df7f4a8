// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Models of real machines, written by gpu-conformance record, are in the folder recorded.
//
//go:embed models
var builtIn embed.FS

// builtInFiles maps the names of the built-in models to their files.
func builtInFiles() map[string]string {
	files := map[string]string{}
	for _, pattern := range []string{"models/*.yaml", "models/recorded/*.yaml"} {
		// The pattern is valid, so Glob cannot fail.
		found, _ := fs.Glob(builtIn, pattern)
		for _, file := range found {
			files[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
		}
	}
	return files
}

// ModelNames lists the built-in models in alphabetical order.
func ModelNames() []string { return slices.Sorted(maps.Keys(builtInFiles())) }

// LoadModel reads and validates a model: a built-in one by its name, or the
// file at a path that ends in .yaml or .yml. Errors name the file and the
// field; an unknown name is [simerr.ErrNotFound], a bad model [simerr.ErrInvalid].
func LoadModel(nameOrPath string) (*Model, error) {
	if ext := filepath.Ext(nameOrPath); ext == ".yaml" || ext == ".yml" {
		data, err := os.ReadFile(nameOrPath)
		if err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		return parseModel(nameOrPath, data)
	}
	file, ok := builtInFiles()[nameOrPath]
	if !ok {
		return nil, fmt.Errorf("model %q: %w: built in are %s; a model of your own is given as the path of its .yaml file",
			nameOrPath, simerr.ErrNotFound, strings.Join(ModelNames(), ", "))
	}
	data, err := builtIn.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return parseModel(nameOrPath, data)
}

func parseModel(file string, data []byte) (*Model, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w: %w", file, simerr.ErrInvalid, err)
	}
	m := &Model{}
	strict, err := kjson.UnmarshalStrict(asJSON, m)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("model %s: %w: %w", file, simerr.ErrInvalid, err)
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("model %s: %w", file, err)
	}
	return m, nil
}
