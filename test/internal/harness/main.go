// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"testing"
)

// Main is TestMain of tests on a cluster. It parses the flags, brings the cluster up, calls setUp, runs the tests, and
// leaves the cluster as it found it, also after an interrupt, which ends the context. With -keep it leaves everything.
// What only lists its tests needs no cluster. name is that of the cluster, unless a flag says another one.
func Main(m *testing.M, name string, setUp func(context.Context, *Cluster) error) {
	bin := flag.String("bin", "", "folder with the binaries that make build makes (default: .build/bin of the repository)")
	keep := flag.Bool("keep", false, "leave the cluster running afterwards")
	flag.StringVar(&name, "cluster", name, "name of the cluster to bring up")
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code, err := runAll(ctx, m, *bin, name, *keep, setUp)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runAll(ctx context.Context, m *testing.M, bin, name string, keep bool, setUp func(context.Context, *Cluster) error) (code int, err error) {
	root, err := repositoryRoot(ctx)
	if err != nil {
		return 1, err
	}
	c, err := Up(ctx, cmp.Or(bin, filepath.Join(root, ".build", "bin")), name)
	if err != nil {
		return 1, err
	}
	if !keep {
		defer func() { err = cmp.Or(err, c.end(context.WithoutCancel(ctx))) }()
	}
	if err := setUp(ctx, c); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// AtEnd has [Main] call a function before it takes the cluster down. Later ones are called first.
func (c *Cluster) AtEnd(end func(context.Context) error) { c.ends = append(c.ends, end) }

// end leaves the cluster as Up found it: it takes it down, or removes the newer objects from
// one that was up before.
func (c *Cluster) end(ctx context.Context) error {
	var errs []error
	for _, end := range slices.Backward(c.ends) {
		errs = append(errs, end(ctx))
	}
	if c.found != nil {
		errs = append(errs, c.found.Restore(ctx))
	} else {
		errs = append(errs, c.Down(ctx))
	}
	for _, node := range c.Further {
		errs = append(errs, node.Down(ctx))
	}
	return errors.Join(errs...)
}
