// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"testing"
)

// Main is TestMain of tests on a cluster, which run brings up and takes down: it
// parses the flags, has an interrupt end the context, and ends the process. What
// only lists its tests needs no cluster.
func Main(m *testing.M, name string, run func(context.Context, *testing.M) (code int, err error)) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// End leaves the cluster as Up found it, even if ctx has ended: it takes it down, or
// removes the newer objects from one that was up before. With keep it leaves
// everything. It is made for defer: it stores its error in err if err is nil.
func (c *Cluster) End(ctx context.Context, keep bool, err *error) {
	if keep {
		return
	}
	ctx = context.WithoutCancel(ctx)
	end := c.Down
	if c.found != nil {
		end = c.found.Restore
	}
	endErr := end(ctx)
	for _, node := range c.Further {
		endErr = errors.Join(endErr, node.Down(ctx))
	}
	if *err == nil {
		*err = endErr
	}
}
