// SPDX-License-Identifier: Apache-2.0

// Package program has what the programs of a node have in common: flags with environment
// variables, logs, and the end by a signal.
package program

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// helpColumns is the width of --help.
const helpColumns = 100

// Program is a program without arguments.
type Program struct {
	Name, Short, Long string
	// Flags are in the groups that --help shows. Environment begins the names of
	// their variables.
	Flags       cliflag.NamedFlagSets
	Environment environment.Prefix
	// Logging is the result of [LoggingFlags].
	Logging *logsapi.LoggingConfiguration
	// Complete sets values that follow from flags. It returns an error for flags that
	// cannot work.
	Complete func() error
	// Run runs the program until the command's context ends.
	Run func(cmd *cobra.Command) error
}

// Command returns the program as a command. It prints no error.
func (p Program) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     p.Name + " [flags]",
		Short:   p.Short,
		Long:    p.Long,
		Args:    cobra.NoArgs,
		Version: version.Get().GitVersion,
		// Execute prints the error, once and without the usage.
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.Environment.Apply(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := p.Complete(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(p.Logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			defer klog.Flush()
			return p.Run(cmd)
		},
	}
	for _, name := range p.Flags.Order {
		cmd.Flags().AddFlagSet(p.Flags.FlagSets[name])
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cliflag.SetUsageAndHelpFunc(cmd, p.Flags, helpColumns)
	return cmd
}

// LoggingFlags declares the flags of logs. Experimental ones are hidden.
func LoggingFlags(sets *cliflag.NamedFlagSets) *logsapi.LoggingConfiguration {
	config, fs := logsapi.NewLoggingConfiguration(), sets.FlagSet("logging")
	logsapi.AddFlags(config, fs)
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = strings.HasPrefix(f.Usage, "[Alpha]") })
	return config
}

// MakeAbsolute makes paths absolute. It leaves empty ones unchanged.
func MakeAbsolute(paths ...*string) error {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// Invalid returns the error for the value of a flag: a [gpu.ErrInvalid].
func Invalid(flag string, value any, want string) error {
	return fmt.Errorf("--%s=%v: %w: %s", flag, value, gpu.ErrInvalid, want)
}

// Execute runs a program and returns its exit status. The first SIGINT or SIGTERM ends
// the command's context, after which ending is called; the second one ends the process.
func Execute(cmd *cobra.Command, ending func()) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		ending()
	})
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}
