// SPDX-License-Identifier: Apache-2.0

// Command gpu-sim creates, shows, breaks and reboots simulated GPU nodes. The state
// of a node is in its driver root, so each program that uses the driver sees each change
// at once.
//
// It is also the programs of the simulated driver. Under the name of one of them it is
// that program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func main() {
	prefix, args := "gpu-sim: ", os.Args[1:]
	if program := driverProgram(); program != "" {
		prefix, args = "", append([]string{program}, args...)
	}
	c := newCommand()
	c.SetArgs(args)
	if err := c.ExecuteContext(context.Background()); err != nil {
		status := 1
		if exit := (exitError{}); errors.As(err, &exit) {
			status = exit.status
		} else {
			fmt.Fprintf(os.Stderr, "%s%v\n", prefix, err)
		}
		os.Exit(status)
	}
}

// exitError is an error that is printed already, with the exit status of the process.
type exitError struct {
	error
	status int
}

func (e exitError) Unwrap() error { return e.error }

// tool is what the subcommands share.
type tool struct{ state string }

func newCommand() *cobra.Command {
	t := &tool{}
	root := &cobra.Command{
		Use:           "gpu-sim",
		Short:         "Simulated GPU nodes: make, show, break and reboot them",
		SilenceUsage:  true,
		SilenceErrors: true,
		// The programs of the driver parse their own flags.
		TraverseChildren: true,
		CompletionOptions: cobra.CompletionOptions{
			HiddenDefaultCmd: true,
		},
	}
	root.PersistentFlags().StringVar(&t.state, "state", os.Getenv("GPU_SIM_STATE"),
		"directory of the simulated node (environment: GPU_SIM_STATE; default: the root file system that has this program)")
	root.AddCommand(t.create(), t.show(), t.fault(), t.reset(), t.reboot(), t.process(), t.driver(), t.mps(), t.destroy(), t.mpsControl(), t.mpsServer(), t.smi(), t.imex(), t.imexControl())
	return root
}

// open opens the node that --state names, or else the one whose root file system has this
// program. It returns [simerr.ErrNotFound] if there is no node.
func (t *tool) open() (*nvmlsim.Sim, error) {
	if t.state != "" {
		return nvmlsim.Open(t.state)
	}
	self, err := self()
	if err != nil {
		return nil, err
	}
	s, err := nvmlsim.OpenOwner(self)
	if errors.Is(err, simerr.ErrNotFound) {
		return nil, fmt.Errorf("which node? give its directory with --state: %w", err)
	}
	return s, err
}
