// SPDX-License-Identifier: Apache-2.0

// Command bench measures the real agent binary on simulated GPUs and with a real API
// server:
//
//   - the duration of prepare and unprepare over the plugin's socket
//   - the time from the start of the process to published ResourceSlices
//   - the memory of the agent
//   - the duration of the hook that limits the memory of a container
//
// The report compares each figure with the design, and latencies with a yardstick of
// the same machine and run. A slow figure is not an error.
//
// With -against an agent of another commit runs on a node of its own, and with -compare
// NVIDIA's DRA driver. Ours and the other one do each step in turn, and the report has the
// median ratio of the pairs.
//
// The bench acts as the kubelet, for separate node objects that run no pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

type options struct {
	bin, kubeconfig, output, against string
	rounds, bursts, starts           int
	compare                          bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", ".build/bin", "`DIR` that make build fills")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` of an administrator of a cluster that is up, in place of a test cluster for the run")
	flag.StringVar(&o.output, "o", "table", "output `FORMAT`: table or json")
	flag.IntVar(&o.rounds, "rounds", 200, "prepares and unprepares of one claim")
	flag.IntVar(&o.bursts, "bursts", 30, "times that 8 claims are prepared at once")
	flag.IntVar(&o.starts, "starts", 5, "starts of the agent, between which the rounds and bursts are divided")
	flag.StringVar(&o.against, "against", "", "compare with `FILE`, the agent of another commit, and measure nothing else")
	flag.BoolVar(&o.compare, "compare", false, "compare with NVIDIA's DRA driver, which make .build/bin/foreign/built builds, and measure nothing else")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("-o %s: want table or json", o.output)
	}
	if o.rounds < 1 || o.bursts < 1 || o.starts < 1 {
		return errors.New("-rounds, -bursts and -starts must be at least 1")
	}
	if o.compare && o.against != "" {
		return errors.New("-compare and -against: want one of them")
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if o.against != "" {
		if o.against, err = filepath.Abs(o.against); err != nil {
			return err
		}
	}
	if o.kubeconfig == "" {
		progress("bringing the test cluster bench up")
		cluster, err := harness.Up(ctx, o.bin, "bench")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cluster.Down(context.WithoutCancel(ctx))) }()
		o.kubeconfig = cluster.Kubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the bench must not measure its own client's limits
	// The yardstick of a read is like the agent's.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	switch {
	case o.compare:
		return compareWith(ctx, client, o, newNVIDIAs, "NVIDIA'S")
	case o.against != "":
		other := func(b *bench) *driver { return newAgent(b, o.against, o.against) }
		return compareWith(ctx, client, o, other, "OTHER")
	}
	b, err := newBench(ctx, client, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return report(os.Stdout, o.output, lineHeader(), figures.lines())
}

// compareWith measures our agent and another driver in turn, and prints the comparison.
func compareWith(ctx context.Context, client kubernetes.Interface, o options, other func(*bench) *driver, column string) (err error) {
	var benches []*bench
	defer func() {
		for _, b := range benches {
			err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
		}
	}()
	for range 2 {
		b, err := newBench(ctx, client, o)
		if err != nil {
			return err
		}
		benches = append(benches, b)
	}
	ours, theirs := newAgent(benches[0], "our agent", benches[0].program()), other(benches[1])
	r := runner{options: o, drivers: []*driver{ours, theirs}}
	if err := r.measure(ctx); err != nil {
		return err
	}
	return report(os.Stdout, o.output, comparisonHeader(column), compare(&ours.figures, &theirs.figures))
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
