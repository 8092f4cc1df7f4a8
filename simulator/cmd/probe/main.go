// SPDX-License-Identifier: Apache-2.0

// Command probe prints a container's access to GPUs as one JSON document on standard
// output: device nodes and whether they can be opened, environment, libraries and DRA
// device metadata.
//
//	probe once   prints and exits
//	probe hold   prints and waits for SIGTERM
//	probe cuda [--memory SIZE] [--device N] [--once]
//	             acts as a CUDA process on simulated GPUs: joins MPS if its
//	             environment is set so, allocates memory, prints the result and
//	             holds the memory until SIGTERM; it prints a refusal or a loss
//	             and exits with status 1
//	probe cuda [--without-limits] [--set-env NAME=VALUE] [--drop-env NAME]
//	             [--no-mps] [--processes N] [--greedy]
//	             behaves badly: changes the variables that limit it, ignores MPS,
//	             allocates in several processes, allocates until CUDA refuses
//
// It uses the standard library only, and runs without a shared library.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	mode, args := "hold", os.Args[1:]
	if len(args) > 0 {
		mode, args = args[0], args[1:]
	}
	var err error
	switch {
	case mode == "cuda":
		o, parseErr := parseCUDA(args, os.Stderr)
		if parseErr != nil {
			os.Exit(2)
		}
		err = runCUDA(ctx, "/", os.Environ(), o, os.Stdout)
	case len(args) == 0 && (mode == "hold" || mode == "once"):
		if err = printReport(); err == nil && mode == "hold" {
			<-ctx.Done()
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: probe [hold|once|cuda]")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func printReport() error {
	report, err := look("/", os.Environ())
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
