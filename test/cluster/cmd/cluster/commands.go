// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/spf13/cobra"
)

// options are the flags that all commands share.
type options struct {
	name, bin string
	// kubernetes is the name of the release; empty for the default.
	kubernetes string
	began      time.Time
}

func newCommand() *cobra.Command {
	o := &options{began: time.Now()}
	root := &cobra.Command{
		Use:   "cluster",
		Short: "A real single-machine Kubernetes for tests and demos",
		Long: `A real single-machine Kubernetes for tests and demos: etcd, control plane, kubelet,
containerd and runc in a network namespace of their own. "up" has a flag for CRI-O.
Needs root on Linux.

After "up", other programs read the paths of the cluster from ` + cluster.StateRoot + `/NAME/cluster.json.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&o.name, "name", "default", "name of the cluster; several can be up at once")
	root.PersistentFlags().StringVar(&o.bin, "bin", "", "directory of the binaries (default .build/cluster or .build/cluster-RELEASE in the clone around the working directory or this program)")
	root.PersistentFlags().StringVar(&o.kubernetes, "kubernetes", os.Getenv("CLUSTER_KUBERNETES"), "release of Kubernetes: 1.35, 1.36, 1.37 or 1.37.2 (default $CLUSTER_KUBERNETES, or "+build.DefaultRelease+")")
	root.AddCommand(o.up(), o.down(), o.status(), o.restart(), o.start(), o.stop(), o.loadImage(), o.loadProgram(), o.build(), o.pack())
	return root
}

func (o *options) up() *cobra.Command {
	var containerRuntime string
	var nodes int
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up; a healthy one is left alone, a broken one made anew",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, source, err := o.forRoot()
			if err != nil {
				return err
			}
			release, err := build.FindRelease(o.kubernetes)
			if err != nil {
				return err
			}
			if nodes < 1 || nodes > 9 {
				return fmt.Errorf("%d nodes: want 1 to 9", nodes)
			}
			if !slices.Contains(build.ContainerRuntimes(), containerRuntime) {
				return fmt.Errorf("unknown container runtime %q: want one of %s", containerRuntime, strings.Join(build.ContainerRuntimes(), ", "))
			}
			info, err := cluster.Up(cmd.Context(), l, cluster.Options{
				Source: source, Release: release, ContainerRuntime: containerRuntime, Nodes: nodes, Say: o.say,
			})
			if err != nil {
				return err
			}
			o.say("use it: export KUBECONFIG=%s PATH=%s:$PATH", info.Kubeconfig, info.BinDir)
			return nil
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "number of nodes, 1 to 9; commands name the second one NAME.2")
	cmd.Flags().StringVar(&containerRuntime, "container-runtime", cmp.Or(os.Getenv("CLUSTER_CONTAINER_RUNTIME"), build.Containerd), "container runtime: "+strings.Join(build.ContainerRuntimes(), " or ")+" (default $CLUSTER_CONTAINER_RUNTIME, or "+build.Containerd+")")
	return cmd
}

func (o *options) down() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take the cluster down and leave nothing behind",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			layouts := []cluster.Layout{l}
			if all {
				if layouts, err = cluster.All(l.Bin); err != nil {
					return err
				}
			}
			var errs []error
			for _, l := range layouts {
				errs = append(errs, cluster.Down(cmd.Context(), l, o.say))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "take down every cluster below "+cluster.StateRoot)
	return cmd
}

func (o *options) status() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the cluster is healthy; fails where it is not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, _, err := o.layout()
			if err != nil {
				return err
			}
			status := cluster.GetStatus(cmd.Context(), l)
			switch output {
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				err = encoder.Encode(status)
			case "":
				err = printStatus(cmd.OutOrStdout(), status)
			default:
				return fmt.Errorf("output %q: want json or nothing", output)
			}
			if err == nil && !status.Healthy {
				err = fmt.Errorf("cluster %s is not healthy: %s", l.Name, status.Problem)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	return cmd
}

func (o *options) restart() *cobra.Command {
	return &cobra.Command{
		Use:       "restart COMPONENT",
		Short:     "Restart one daemon, such as the kubelet, under running pods",
		Args:      cobra.ExactArgs(1),
		ValidArgs: cluster.Components(),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			return cluster.Restart(cmd.Context(), l, args[0], o.say)
		},
	}
}

func (o *options) loadImage() *cobra.Command {
	return &cobra.Command{
		Use:   "load-image ARCHIVE...",
		Short: "Load image archives (docker save, or OCI) into the cluster; pods need imagePullPolicy: Never",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			for _, archive := range args {
				if err := cluster.LoadImage(cmd.Context(), l, archive); err != nil {
					return err
				}
				o.say("loaded %s", archive)
			}
			return nil
		},
	}
}

func (o *options) loadProgram() *cobra.Command {
	var root bool
	cmd := &cobra.Command{
		Use:   "load-program FILE REFERENCE",
		Short: "Load a static program as an image that has it at its top and runs it",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			return cluster.LoadProgram(cmd.Context(), l, args[0], args[1], root)
		},
	}
	cmd.Flags().BoolVar(&root, "root", false, "the image runs as root")
	return cmd
}

func (o *options) build() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's binaries (about 15 minutes on 2 cores the first time)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, source, err := o.layout()
			if err != nil {
				return err
			}
			release, err := build.FindRelease(o.kubernetes)
			if err != nil {
				return err
			}
			stale, err := build.Stale(source, l.Bin, build.Targets(release, build.Containerd))
			if err != nil {
				return err
			}
			if err := build.Run(cmd.Context(), source, l.Bin, stale, o.say); err != nil {
				return err
			}
			o.say("all binaries are in %s", l.Bin)
			return nil
		},
	}
}

// layout resolves the flags. The source is "" outside a clone.
func (o *options) layout() (l cluster.Layout, source string, err error) {
	source, err = findSource()
	if err != nil {
		return cluster.Layout{}, "", err
	}
	bin := o.bin
	if bin == "" {
		if source == "" {
			return cluster.Layout{}, "", errors.New("neither the working directory nor this program is in a clone of the repository: say with --bin where the cluster's binaries are")
		}
		release, err := build.FindRelease(o.kubernetes)
		if err != nil {
			return cluster.Layout{}, "", err
		}
		bin = filepath.Join(source, "..", "..", ".build", release.Folder())
	}
	l, err = cluster.NewLayout(o.name, bin)
	return l, source, err
}

func (o *options) forRoot() (cluster.Layout, string, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return cluster.Layout{}, "", errors.New("a real Kubernetes node (kubelet, containerd, network namespaces) needs root on Linux: run this with sudo")
	}
	return o.layout()
}

// findSource looks around the working directory first, then around this
// program, which "make build" puts into the clone.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if source := build.FindSource(dir); source != "" {
		return source, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	return build.FindSource(filepath.Dir(program)), nil
}

func (o *options) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(o.began).Seconds(), fmt.Sprintf(format, args...))
}
