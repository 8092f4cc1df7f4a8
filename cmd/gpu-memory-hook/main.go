// SPDX-License-Identifier: Apache-2.0

// Command gpu-memory-hook is an OCI hook (createRuntime) that limits the memory that a
// container has of a GPU. The agent installs it, and names it with its arguments in the
// CDI specs of claims. It needs neither the agent nor the API server, but is faster with the
// agent. It is static and small, because each container with a share waits for its start.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
)

func main() {
	if err := memoryhook.Run(context.Background(), os.Args, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
