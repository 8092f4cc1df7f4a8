// SPDX-License-Identifier: Apache-2.0

// Command gpu-kubelet-plugin is the node agent of gpu-dra-driver: it publishes
// the node's GPUs as ResourceSlices and prepares the devices of the
// ResourceClaims that the kubelet asks for.
//
// This package reads flags and runs package agent with them. It decides nothing about
// GPUs or claims.
package main

import (
	"os"
	"runtime/debug"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
)

// garbage is the limit of garbage in percent of the used memory. The agent runs on
// every node and does little, so frequent collections, which save 2 to 3 MB, are worth
// their time.
const garbage = 50

func main() { os.Exit(execute()) }

// execute runs the program and returns its exit status.
func execute() int {
	debug.SetGCPercent(garbage)
	return program.Execute(newCommand(endInTime), endInTime)
}
