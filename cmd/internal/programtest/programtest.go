// SPDX-License-Identifier: Apache-2.0

// Package programtest helps to test the programs of a node.
package programtest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
)

// Flags returns all flags in one set.
func Flags(sets cliflag.NamedFlagSets) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, fs := range sets.FlagSets {
		all.AddFlagSet(fs)
	}
	return all
}

// Parse reads a command line and environment variables into flags, as a program does.
func Parse(sets cliflag.NamedFlagSets, prefix environment.Prefix, args []string, variables map[string]string) error {
	all := Flags(sets)
	if err := all.Parse(args); err != nil {
		return err
	}
	return prefix.Apply(all, func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
}

// Process returns a command that runs the test's own program, and the output of the
// process. The program's TestMain reads the environment variable.
func Process(t *testing.T, variable string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), variable)
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// Output returns what a command prints.
func Output(t *testing.T, cmd *cobra.Command, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
