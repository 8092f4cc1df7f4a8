// SPDX-License-Identifier: Apache-2.0

// Command gpu-memory-limit calls the driver to limit the memory that a cgroup has of a GPU.
// gpu-memory-hook runs it if no agent makes the call. It is a program of its own because a
// process that hangs in the driver cannot be killed, and because it needs a C library, which
// takes longer to start.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
)

func main() {
	err := memoryhook.RunCall(context.Background(), os.Args[1:], func(driverRoot string) memoryhook.Driver { return nvml.Open(driverRoot) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
