// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
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

// End takes the cluster down unless keep is set, even if ctx has ended. It is made
// for defer: it stores its error in err if err is nil.
func (c *Cluster) End(ctx context.Context, keep bool, err *error) {
	if keep {
		return
	}
	if downErr := c.Down(context.WithoutCancel(ctx)); *err == nil {
		*err = downErr
	}
}
