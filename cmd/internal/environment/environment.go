// SPDX-License-Identifier: Apache-2.0

// Package environment gives the flags of our programs twins in the environment.
package environment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Prefix and the flag's name in capitals are the name of a twin: with
// "GPU_DRA_", GPU_DRA_NODE_NAME is that of node-name.
type Prefix string

// Name of a flag's twin.
func (p Prefix) Name(flag string) string {
	return string(p) + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Apply sets every flag that the command line does not give from its twin, so
// that a flag wins over the environment and that over the default. The errors
// name the variables.
func (p Prefix) Apply(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(p.Name(f.Name))
		if f.Changed || !ok {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", p.Name(f.Name), err))
		}
	})
	return errors.Join(errs...)
}
