// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Foreign is a program of NVIDIA's on the cluster's node. It is a judge of the simulated
// machine.
type Foreign struct {
	// Name among the programs on the node, and of the log.
	Name string
	// Program is the path below the folder of programs that `make foreign` fills.
	Program string
	// Machine is the driver root of the simulated node.
	Machine string
	// Folders of the node that the program has at another path, by that path.
	Folders map[string]string
	// Env are further variables, as NAME=value.
	Env []string
	// Args of the program.
	Args []string
}

// foreignScript mounts the files of a machine where programs without a flag for it look.
// It does so in the mount namespace of the program alone: a container runtime refuses
// mounts inside /proc. $1 is the driver root. Pairs of a folder and its path follow, up
// to --. /run is the program's own, so that no path in it stays behind.
const foreignScript = `set -eu
root=$1; shift
mount --bind "$root/proc/driver" /proc/driver
mount --bind "$root/proc/devices" /proc/devices
mount --bind "$root/proc/sys/kernel/random" /proc/sys/kernel/random
mount --bind "$root/sys" /sys
mount -t tmpfs tmpfs /run
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
shift
exec env "$@"`

// StartForeign starts a program of NVIDIA's, and does not wait for anything. One of
// that name that runs already is stopped first. It ends with the cluster.
func (c *Cluster) StartForeign(ctx context.Context, f Foreign) error {
	if err := c.StopForeign(ctx, f.Name); err != nil {
		return err
	}
	// It has the lines of the earlier program.
	if err := os.Remove(c.ForeignLog(f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := []string{"start", f.Name, "--log", c.ForeignLog(f.Name), "--"}
	if err := c.tool(ctx, append(args, f.command(c)...)...); err != nil {
		return fmt.Errorf("start %s: %w", f.Name, err)
	}
	return nil
}

// RunForeign runs a program of NVIDIA's to its end, and returns its standard output. It
// needs no name.
func (c *Cluster) RunForeign(ctx context.Context, f Foreign) (string, error) {
	args := f.command(c)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", f.Program, err, stderr.String())
	}
	return string(out), nil
}

// command returns the program with its arguments, in a mount namespace of its own.
func (f Foreign) command(c *Cluster) []string {
	args := []string{"unshare", "--mount", "sh", "-c", foreignScript, "sh", f.Machine}
	for _, path := range slices.Sorted(maps.Keys(f.Folders)) {
		args = append(args, f.Folders[path], path)
	}
	args = append(append(args, "--"), f.Env...)
	return append(append(args, filepath.Join(c.Bin, "foreign", f.Program)), f.Args...)
}

// StopForeign ends a program of [Cluster.StartForeign], if it runs.
func (c *Cluster) StopForeign(ctx context.Context, name string) error {
	return c.tool(ctx, "stop", name)
}

// ForeignLog is where the output of a program of [Cluster.StartForeign] goes.
func (c *Cluster) ForeignLog(name string) string { return filepath.Join(c.StateDir, name+".log") }
