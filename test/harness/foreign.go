// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"path/filepath"
)

// Foreign is a program of NVIDIA's that runs on the cluster's node, as a judge of the
// simulated machine.
type Foreign struct {
	// Name among the programs on the node, and of the log.
	Name string
	// Program is the path below the folder of programs that `make foreign` fills.
	Program string
	// Machine is the driver root of the simulated node.
	Machine string
	// Env are further variables, as NAME=value.
	Env []string
	// Args of the program.
	Args []string
}

// foreignScript puts the files of a machine where programs look for them that have no
// flag for it, in the mount namespace of the program alone: a container runtime refuses
// mounts inside /proc. $1 is the driver root.
const foreignScript = `set -eu
root=$1; shift
mount --bind "$root/proc/driver" /proc/driver
mount --bind "$root/proc/devices" /proc/devices
mount --bind "$root/proc/sys/kernel/random" /proc/sys/kernel/random
mount --bind "$root/sys" /sys
exec env "$@"`

// StartForeign starts a program of NVIDIA's, and does not wait for anything. One of
// that name that runs already is stopped first. It ends with the cluster.
func (c *Cluster) StartForeign(ctx context.Context, f Foreign) error {
	if err := c.StopForeign(ctx, f.Name); err != nil {
		return err
	}
	args := []string{
		"start", f.Name, "--log", c.ForeignLog(f.Name), "--",
		"unshare", "--mount", "sh", "-c", foreignScript, "sh", f.Machine,
	}
	args = append(args, f.Env...)
	args = append(args, filepath.Join(c.Bin, "foreign", f.Program))
	if err := c.tool(ctx, append(args, f.Args...)...); err != nil {
		return fmt.Errorf("start %s: %w", f.Name, err)
	}
	return nil
}

// StopForeign ends a program of [Cluster.StartForeign], if it runs.
func (c *Cluster) StopForeign(ctx context.Context, name string) error {
	return c.tool(ctx, "stop", name)
}

// ForeignLog is where the output of a program of [Cluster.StartForeign] goes.
func (c *Cluster) ForeignLog(name string) string { return filepath.Join(c.StateDir, name+".log") }
