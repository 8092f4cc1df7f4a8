// SPDX-License-Identifier: Apache-2.0

// Command images builds the container images of the driver as archives. It uses the
// driver's binaries and the files that these need at run time. It needs no
// container engine and no registry. Its subcommands make and push a release.
//
// Out of scope: building the binaries ("make images" does it before); signatures.
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
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/sysroot"
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
	var common flags
	cmd := &cobra.Command{
		Use:           "images --bin DIR --out DIR",
		Short:         "Build the driver's container images as archives",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := common.complete(cmd); err != nil {
				return err
			}
			return common.write(cmd.Context(), common.builder)
		},
	}
	common.add(cmd, "../../.build/images")
	cmd.Flags().StringVar(&common.bin, "bin", "../../.build/bin", "`DIR` with the binaries from make build")
	cmd.AddCommand(newSysroot(), newRelease(),
		newPublish("push", "Push the images and the chart of a release to a registry, with their bills of materials and provenance", push.run),
		newPublish("references", "Print the reference and digest of everything that push pushes", push.references))
	return cmd
}

// flags are common to the commands that build images.
type flags struct {
	output
	builder
	created int64
}

func (f *flags) add(cmd *cobra.Command, dir string) {
	fs := cmd.Flags()
	fs.StringVar(&f.licence, "licence", "../../LICENSE", "`FILE` with the driver's licence")
	fs.StringVar(&f.version, "version", "v0.0.0", "`VERSION` of the driver; with _ for +, which references cannot have, it is the tag")
	fs.StringVar(&f.revision, "revision", "unknown", "`COMMIT` of the driver's sources")
	fs.Int64Var(&f.created, "created", 0, "`SECONDS` since 1970 that the images carry as their creation time (SOURCE_DATE_EPOCH)")
	fs.StringVar(&f.dir, "out", dir, "`DIR` for the archives and images.json, which lists them")
	fs.StringVar(&f.prefix, "prefix", "localhost/gpu-dra-driver", "`PREFIX` of the images' names: a host and perhaps a path")
}

// complete sets the fields that have no flag.
func (f *flags) complete(cmd *cobra.Command) (err error) {
	f.say, f.layers = cmd.OutOrStdout(), layer.Cache{}
	f.builder.created = time.Unix(f.created, 0)
	f.sources, err = goRoots(cmd.Context())
	return err
}

func newRelease() *cobra.Command {
	var (
		common flags
		r      = release{images: images()}
	)
	cmd := &cobra.Command{
		Use:   "release --cross DIR --out DIR",
		Short: "Build the images of a release for all architectures, and describe all files of its folder",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := common.complete(cmd); err != nil {
				return err
			}
			r.output, r.builder = common.output, common.builder
			return r.write(cmd.Context())
		},
	}
	common.add(cmd, "../../.build/release")
	cmd.Flags().StringVar(&r.cross, "cross", "../../.build/cross", "`DIR` from make cross-programs")
	cmd.Flags().StringVar(&r.fips, "fips", "v1.0.0", "`VERSION` of Go's cryptographic module in the images with the suffix -fips")
	cmd.Flags().StringVar(&r.by, "builder", source+"/blob/main/RELEASE.md#make-a-release", "`URL` of the workflow or document that stands for who builds")
	return cmd
}

func newPublish(use, short string, run func(push) error) *cobra.Command {
	var from, prefix string
	cmd := &cobra.Command{
		Use: use + " --from DIR", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(newPush(cmd.Context(), from, prefix, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&from, "from", "../../.build/release", "`DIR` from make release")
	cmd.Flags().StringVar(&prefix, "prefix", "", "`PREFIX` of the names in the registry; empty for the one that the release was made with")
	return cmd
}

func newSysroot() *cobra.Command {
	var architecture, out string
	cmd := &cobra.Command{
		Use:   "sysroot --arch ARCH --out DIR",
		Short: "Unpack Debian's C library of an architecture into a folder, with a compiler that uses it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, a := range sysroot.Architectures() {
				if a.Debian == architecture {
					return sysroot.Make(cmd.Context(), a, out)
				}
			}
			return fmt.Errorf("architecture %q: want amd64 or arm64", architecture)
		},
	}
	cmd.Flags().StringVar(&architecture, "arch", "arm64", "`ARCH` of the programs, in Go's and Debian's words")
	cmd.Flags().StringVar(&out, "out", "../../.build/cross/arm64", "`DIR` to replace")
	return cmd
}
