// SPDX-License-Identifier: Apache-2.0

// Command aiconformance runs the tests of kubernetes-sigs/ai-conformance, from a checkout,
// against a cluster with a simulated DGX H100.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var s suite
	bin := flag.String("bin", ".build/bin", "folder with the binaries that `make build` makes")
	clusterName := flag.String("cluster", "ai-conformance", "name of the cluster to bring up")
	flag.StringVar(&s.source, "source", "", "checkout of kubernetes-sigs/ai-conformance")
	flag.StringVar(&s.run, "run", acceleratorTests, "regular expression of the tests to run; the default are those about accelerators")
	flag.StringVar(&s.log, "log", ".build/ai-conformance/e2e.log", "file for the output of the tests, the evidence of a submission")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.runOn(ctx, *bin, *clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "ai-conformance:", err)
		stop()
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Printf("\n==> "+format+"\n", args...) }
