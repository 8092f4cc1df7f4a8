// SPDX-License-Identifier: Apache-2.0

// Command gpu-sim creates, shows, breaks and reboots simulated GPU nodes. The state
// of a node is in a directory that the driver shares (--hardware=sim:...), so the
// driver sees each change at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

func main() {
	if err := newCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-sim:", err)
		status := 1
		if exit := (exitError{}); errors.As(err, &exit) {
			status = exit.status
		}
		os.Exit(status)
	}
}

// tool is what the subcommands share.
type tool struct{ state string }

func newCommand() *cobra.Command {
	t := &tool{}
	root := &cobra.Command{
		Use:           "gpu-sim",
		Short:         "Simulated GPU nodes: make, show, break and reboot them",
		SilenceUsage:  true,
		SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{
			HiddenDefaultCmd: true,
		},
	}
	root.PersistentFlags().StringVar(&t.state, "state", os.Getenv("GPU_SIM_STATE"), "directory of the simulated node (environment: GPU_SIM_STATE)")
	root.AddCommand(t.create(), t.show(), t.fault(), t.reset(), t.reboot(), t.computeMode(), t.process(), t.driver(), t.mps(), t.destroy(), t.mpsControl(), t.smi())
	return root
}

// open opens the node that --state names.
func (t *tool) open() (*nvmlsim.Sim, error) {
	if t.state == "" {
		return nil, fmt.Errorf("which node? give its directory with --state")
	}
	return nvmlsim.Open(t.state)
}
