// SPDX-License-Identifier: Apache-2.0

// Command images builds the container images of the driver as archives. It uses the
// driver's binaries and the files that these need at run time. It needs no
// container engine and no registry.
//
// Out of scope: building the binaries ("make images" does it before), and
// pushing images anywhere.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var (
		o       output
		b       builder
		created int64
	)
	cmd := &cobra.Command{
		Use:           "images --bin DIR --out DIR",
		Short:         "Build the driver's container images as archives",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.say, b.layers = cmd.OutOrStdout(), layer.Cache{}
			b.created = time.Unix(created, 0)
			if b.sources, err = goRoots(cmd.Context()); err != nil {
				return err
			}
			return o.write(cmd.Context(), b)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&b.bin, "bin", "../../.build/bin", "`DIR` with the binaries from make build")
	fs.StringVar(&b.licence, "licence", "../../LICENSE", "`FILE` with the driver's licence")
	fs.StringVar(&b.version, "version", "v0.0.0", "`VERSION` of the driver; with _ for +, which references cannot have, it is the tag")
	fs.StringVar(&b.revision, "revision", "unknown", "`COMMIT` of the driver's sources")
	fs.Int64Var(&created, "created", 0, "`SECONDS` since 1970 that the images carry as their creation time (SOURCE_DATE_EPOCH)")
	fs.StringVar(&o.dir, "out", "../../.build/images", "`DIR` for the archives and images.json, which lists them")
	fs.StringVar(&o.prefix, "prefix", "localhost/gpu-dra-driver", "`PREFIX` of the images' names: a host and perhaps a path")
	return cmd
}
