// SPDX-License-Identifier: Apache-2.0

// Command gpu-mps-supervisor runs the MPS control daemons of a node: it starts and stops
// them for the node agent, and restarts daemons that die. It is a separate process so
// that an update of the agent, or of the supervisor itself, ends no client.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(execute(linkedSimulator())) }

// execute runs the program and returns its exit status.
func execute(simulator simulator) int {
	// The second signal ends the process at once: stop restores the default.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand(simulator).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gpu-mps-supervisor: %v\n", err)
		return 1
	}
	return 0
}
