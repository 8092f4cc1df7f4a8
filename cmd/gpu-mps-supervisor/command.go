// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
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
  gpu-sim create --state=/run/node --model=dgx-h100
  gpu-mps-supervisor --driver-root=/run/node

  # What runs, and for how many clients?
  gpu-mps-supervisor status`

// newCommand returns the program.
func newCommand() *cobra.Command {
	o := options{}
	cmd := program.Program{
		Name:        "gpu-mps-supervisor",
		Short:       "Run the MPS control daemons of this node",
		Long:        long,
		Flags:       o.flags(),
		Environment: twins,
		Logging:     o.logging,
		Complete:    o.complete,
		Run: func(cmd *cobra.Command) error {
			supervised, err := o.supervised()
			if err != nil {
				return err
			}
			return supervisor.Run(cmd.Context(), supervised, o.socket)
		},
	}.Command()
	cmd.AddCommand(statusCommand())
	return cmd
}
