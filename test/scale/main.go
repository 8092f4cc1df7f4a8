// SPDX-License-Identifier: Apache-2.0

// Command scale measures the cost of a fleet's ResourceSlices: a real etcd, API server
// and scheduler with the objects of many nodes, but no kubelets.
//
// For each publication (a way to publish a node of eight H100s) it starts a control plane
// and writes the nodes and their slices. Pods with claims are scheduled in the empty
// fleet, then in the half full one, then in the one that is 90 % full. It reports the
// processor time of the scheduler and of the API server for each pod, and compares it with
// plain exclusive GPUs of the same run. A slow figure is not an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

type options struct {
	bin                        string
	publications, kinds, fills string
	nodes, pods                int
	seed                       uint64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", ".build/cluster", "`DIR` with etcd, kube-apiserver and kube-scheduler, which `cluster build` fills")
	flag.StringVar(&o.publications, "publications", "all", "`LIST` of ways to publish a node: all, or some of "+strings.Join(publicationNames(), ", "))
	flag.StringVar(&o.kinds, "kinds", "all", "`LIST` of kinds of claims: all, or some of "+strings.Join(kindNames(), ", "))
	flag.StringVar(&o.fills, "fills", "0,50,90", "`LIST` of percentages of the fleet that claims hold before pods come, ascending")
	flag.IntVar(&o.nodes, "nodes", 1000, "number of nodes")
	flag.IntVar(&o.pods, "pods", 200, "number of pods of each kind")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the claims that fill the fleet")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	chosen, err := choose(o.publications, publications(), func(p publication) string { return p.name })
	if err != nil {
		return fmt.Errorf("-publications: %w", err)
	}
	kinds, err := choose(o.kinds, claimKinds(), func(k claimKind) string { return k.name })
	if err != nil {
		return fmt.Errorf("-kinds: %w", err)
	}
	fills, err := parseFills(o.fills)
	if err != nil {
		return fmt.Errorf("-fills: %w", err)
	}
	if o.nodes < 1 || o.pods < 1 {
		return errors.New("-nodes and -pods must be at least 1")
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	classes, err := allocator.ReadClasses("deployments/static/install.yaml")
	if err != nil {
		return err
	}
	hardware, err := dgxH100(ctx)
	if err != nil {
		return err
	}
	var results []result
	for _, p := range chosen {
		f := fleet{publication: p, hardware: hardware, classes: classes, nodes: o.nodes, seed: o.seed}
		measured, err := measure(ctx, o, f, kinds, fills)
		if err != nil {
			return fmt.Errorf("publication %s: %w", p.name, err)
		}
		results = append(results, measured...)
	}
	return report(os.Stdout, o, results)
}

// choose returns the named items in their own order, or all of them for the word "all".
func choose[T any](names string, all []T, name func(T) string) ([]T, error) {
	if names == "all" {
		return all, nil
	}
	wanted := strings.Split(names, ",")
	var chosen []T
	for _, item := range all {
		if i := slices.Index(wanted, name(item)); i >= 0 {
			chosen, wanted = append(chosen, item), slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("%q is unknown, or there twice", wanted[0])
	}
	return chosen, nil
}

func parseFills(s string) ([]int, error) {
	var fills []int
	for word := range strings.SplitSeq(s, ",") {
		var percent int
		if _, err := fmt.Sscanf(word+"\n", "%d\n", &percent); err != nil || percent < 0 || percent > 100 {
			return nil, fmt.Errorf("%q: want percentages", word)
		}
		fills = append(fills, percent)
	}
	if !slices.IsSorted(fills) {
		return nil, fmt.Errorf("%q: want ascending percentages", s)
	}
	return fills, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
