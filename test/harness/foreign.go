// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"path/filepath"
)

// Foreign is a program of NVIDIA's on the cluster's node. It judges the simulated machine.
type Foreign struct {
	// Name among the programs on the node, and of the log.
	Name string
	// Program is one of the programs that `make foreign` builds.
	Program string
	// Machine is the driver root of the simulated node.
	Machine string
	// Env are further variables, as NAME=value.
	Env []string
	// Args of the program.
	Args []string
}

// foreignScript puts files of the machine and of the program's image at their places.
// The program has no flags for them. They are there in its mount namespace alone: a container
// runtime refuses mounts inside /proc. What the program mounts in a shared mount is on the node
// too. $1 is the driver root, and $2 the folder /templates of
// the image. The rest are variables and the command.
const foreignScript = `set -eu
machine=$1; templates=$2; shift 2
mount --make-private /
mount --make-private /proc
mount --make-private /sys
mount --bind "$machine/proc/driver" /proc/driver
mount --bind "$machine/proc/devices" /proc/devices
mount --bind "$machine/proc/sys/kernel/random" /proc/sys/kernel/random
mount --bind "$machine/sys" /sys
mount -t tmpfs none /mnt
for entry in /*; do
	if [ -L "$entry" ]; then
		cp -P "$entry" /mnt
	elif [ -d "$entry" ] && [ "$entry" != /mnt ]; then
		mkdir "/mnt$entry"
		mount --rbind "$entry" "/mnt$entry"
	fi
done
mkdir /mnt/templates
mount --bind "$templates" /mnt/templates
exec chroot /mnt env "$@"`

// Command returns the command that runs the program, which replaces its process. bin is the
// folder that `make build foreign` fills.
func (f Foreign) Command(bin string) []string {
	folder := filepath.Join(bin, "foreign")
	args := []string{
		"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", foreignScript, "sh", f.Machine, filepath.Join(folder, "source", "templates"),
	}
	args = append(args, f.Env...)
	args = append(args, filepath.Join(folder, f.Program))
	return append(args, f.Args...)
}

// ForeignSource is the folder with the source of NVIDIA's DRA driver: its chart, templates
// and examples.
func (c *Cluster) ForeignSource() string { return filepath.Join(c.Bin, "foreign", "source") }

// ForeignProgram is the path of a program that `make foreign` builds.
func (c *Cluster) ForeignProgram(name string) string { return filepath.Join(c.Bin, "foreign", name) }

// StartForeign starts a program of NVIDIA's, and does not wait for anything. One of
// that name that runs already is stopped first. It ends with the cluster.
func (c *Cluster) StartForeign(ctx context.Context, f Foreign) error {
	if err := c.StopForeign(ctx, f.Name); err != nil {
		return err
	}
	args := append([]string{"start", f.Name, "--log", c.ForeignLog(f.Name), "--"}, f.Command(c.Bin)...)
	if err := c.tool(ctx, args...); err != nil {
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
