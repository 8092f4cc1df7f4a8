// SPDX-License-Identifier: Apache-2.0

// Package environment sets the flags of our programs from environment variables.
package environment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Prefix begins the names of the variables. With "GPU_DRA_", the variable of the flag
// node-name is GPU_DRA_NODE_NAME.
type Prefix string

// Name returns the name of a flag's variable.
func (p Prefix) Name(flag string) string {
	return string(p) + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Apply sets every flag that is not on the command line from its variable. A flag on
// the command line takes precedence over the environment, and the environment over the
// default. The errors name the variables.
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
