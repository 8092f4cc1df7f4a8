// SPDX-License-Identifier: Apache-2.0

// Command kubectl-gpu is the plugin "kubectl gpu": the holders of GPUs, free devices, and
// the reason why a claim does not fit. It also takes a GPU out of use.
package main

import (
	"context"
	"os"
	"os/signal"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return commands.Run(ctx, streams, os.Args[1:])
}
