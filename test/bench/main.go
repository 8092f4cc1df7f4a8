// SPDX-License-Identifier: Apache-2.0

// Command bench measures the real agent binary on simulated GPUs and with a real API
// server:
//
//   - the duration of prepare and unprepare over the plugin's socket
//   - the time from the start of the process to published ResourceSlices
//   - the memory of the agent
//   - the duration of the hook that limits the memory of a container
//   - the scheduler's cost of the published devices
//   - with -compare, what NVIDIA's DRA driver needs for the same on the same node
//   - what a call through the simulated libnvidia-ml.so.1 costs
//
// The report compares each figure with the design, and latencies with a yardstick of
// the same machine and run. A slow figure is not an error.
//
// The bench acts as the kubelet, for a separate node object that runs no pods.
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

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

type options struct {
	bin, cluster, kubeconfig, dir, model, classes, output string
	rounds, bursts, starts                                int
	compare                                               bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", ".build/bin", "`DIR` that make build fills")
	flag.StringVar(&o.cluster, "cluster", "bench", "`NAME` of the test cluster to bring up for the run and take down after it")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` of an administrator of a cluster that is up, in place of a test cluster")
	flag.StringVar(&o.dir, "dir", "", "`DIR` on the disk to measure on (default: the system's temporary one)")
	flag.StringVar(&o.model, "model", "dgx-h100", "`MODEL` of the simulated node; at least 8 GPUs, and the figures of MIG only if they change their MIG mode without a reset (Hopper and newer)")
	flag.StringVar(&o.classes, "classes", "deployments/static/install.yaml", "`FILE` with the DeviceClasses for the allocator")
	flag.StringVar(&o.output, "o", "table", "output `FORMAT`: table or json")
	flag.IntVar(&o.rounds, "rounds", 200, "prepares and unprepares of one claim, and allocations of each kind")
	flag.IntVar(&o.bursts, "bursts", 30, "times that 8 claims, and as many partitions as there are, are prepared at once")
	flag.IntVar(&o.starts, "starts", 5, "starts of the agent")
	flag.BoolVar(&o.compare, "compare", false, "compare with NVIDIA's DRA driver, which make foreign builds, and measure nothing else")
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
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if o.kubeconfig == "" {
		progress("bringing the test cluster %s up", o.cluster)
		cluster, err := harness.Up(ctx, o.bin, o.cluster)
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
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, client, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	if o.compare {
		lines, err := b.compareDrivers(ctx)
		if err != nil {
			return err
		}
		return reportComparison(os.Stdout, o.output, lines)
	}
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return report(os.Stdout, o.output, figures)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
