// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
)

const long = `gpu-mps-supervisor runs the control daemons of CUDA's Multi-Process Service on a
node: one for each GPU or MIG device that is shared, started and stopped by
gpu-kubelet-plugin over a unix socket. The daemons continue when the supervisor ends,
and the next one adopts them. Without daemons it leaves only an empty run directory.
It never changes the compute mode of a GPU.

It needs root, the PID namespace of the host, and CAP_SYS_ADMIN for the mount
namespace in which a daemon has its own /dev/shm, and for the file systems that limit
what containers can write in its folders. In a container, set --mount-namespace and
--cgroup; otherwise the daemons end with the container. Without --mount-namespace,
mount the run directory with Bidirectional propagation or set --shm-size=0; otherwise
other containers do not see the sockets and the /dev/shm of their daemon.

Every flag can be set by an environment variable as well: GPU_MPS_ and its name in
capitals, for example GPU_MPS_DRIVER_ROOT for --driver-root. A flag overrides the
environment, and the environment the default.

Examples:
  # On a node, as root.
  gpu-mps-supervisor

  # In a privileged container with hostPID.
  gpu-mps-supervisor --mount-namespace=/proc/1/ns/mnt --cgroup=/sys/fs/cgroup/gpu-mps

  # With simulated GPUs.
  gpu-mps-supervisor --hardware=sim:dgx-h100 --sim-state=/run/gpu-sim

  # What runs, and for how many clients?
  gpu-mps-supervisor status`

// helpColumns is the width of --help.
const helpColumns = 100

// newCommand returns the program. simulator opens simulated GPUs and is nil in
// production programs.
func newCommand(simulator simulator) *cobra.Command {
	o := options{simulator: simulator}
	sets := o.flags()
	cmd := &cobra.Command{
		Use:     "gpu-mps-supervisor [flags]",
		Short:   "Run the MPS control daemons of this node",
		Long:    long,
		Args:    cobra.NoArgs,
		Version: version.Get().GitVersion,
		// main prints the error, once and without the usage.
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := twins.Apply(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			defer klog.Flush()
			return run(cmd.Context(), &o)
		},
	}
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cliflag.SetUsageAndHelpFunc(cmd, sets, helpColumns)
	cmd.AddCommand(statusCommand())
	return cmd
}

// run runs the supervisor until ctx ends.
func run(ctx context.Context, o *options) error {
	supervised, err := o.supervised()
	if err != nil {
		return err
	}
	// Servers of simulated GPUs, and servers with --multi-user, have the daemon's user.
	if o.hardware == "nvml" && !o.multiUser {
		if err := supervised.CheckRunDir(); err != nil {
			return fmt.Errorf("--run-dir=%s: %w", o.runDir, err)
		}
	}
	// Work that no call waits for ends after the last call.
	running, err := supervisor.New(context.WithoutCancel(ctx), supervised)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Supervising MPS daemons", "version", version.Get().GitVersion, "socket", o.socket, "driverRoot", supervised.Driver, "multiUser", o.multiUser)
	return errors.Join(supervisor.Serve(ctx, o.socket, running), running.Leave(context.WithoutCancel(ctx), o.socket))
}
