// SPDX-License-Identifier: Apache-2.0

// Command gpu-mps-supervisor runs the MPS control daemons of a node: it starts and stops
// them for the node agent, and restarts daemons that die. It is a separate process so
// that an update of the agent, or of the supervisor itself, ends no client.
package main

import (
	"os"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
)

func main() { os.Exit(execute()) }

// execute runs the program and returns its exit status.
func execute() int { return program.Execute(newCommand(), func() {}) }
