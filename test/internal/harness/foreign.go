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

// Foreign is a program of NVIDIA's on the cluster's node. It judges the simulated machine.
type Foreign struct {
	// Name among the programs on the node, and of the log.
	Name string
	// Program is one of the programs that `make .build/bin/foreign/built` builds.
	Program string
	// Machine is the driver root of the simulated node.
	Machine string
	// Folders of the node that the program has at another path, by that path.
	Folders map[string]string
	// Shared is a shared mount of the node, which sees what the program mounts in it. It may be
	// empty.
	Shared string
	// Env are further variables, as NAME=value.
	Env []string
	// Args of the program.
	Args []string
}

// foreignScript puts files of the machine and of the program's image at their places.
// The program has no flags for them. They are there in its mount namespace alone: a container
// runtime refuses mounts inside /proc. /run is the program's own, so that no path in it stays
// behind. $1 is the driver root, $2 the folder /templates of the image, and $3 the shared mount.
// Pairs of a folder and its path follow, up to --, and then variables and the command.
const foreignScript = `set -eu
machine=$1; templates=$2; shared=$3; shift 3
mount --make-private /
mount --make-private /proc
mount --make-private /sys
mount --bind "$machine/proc/driver" /proc/driver
mount --bind "$machine/proc/devices" /proc/devices
mount --bind "$machine/proc/sys/kernel/random" /proc/sys/kernel/random
mount --bind "$machine/sys" /sys
mount -t tmpfs none /mnt
mkdir /mnt/.shared
[ -z "$shared" ] || mount --bind "$shared" /mnt/.shared
for entry in /*; do
	if [ -L "$entry" ]; then
		cp -P "$entry" /mnt
	elif [ -d "$entry" ] && [ "$entry" != /mnt ] && [ "$entry" != /run ]; then
		mkdir "/mnt$entry"
		mount --rbind "$entry" "/mnt$entry"
		mount --make-rslave "/mnt$entry"
	fi
done
[ -z "$shared" ] || mount --bind /mnt/.shared "/mnt$shared"
mkdir /mnt/run /mnt/templates
mount --bind "$templates" /mnt/templates
while [ "$1" != -- ]; do
	mkdir -p "/mnt$2"
	mount --bind "$1" "/mnt$2"
	shift 2
done
shift
exec chroot /mnt env "$@"`

// Command returns the command that runs the program, which replaces its process. bin is the
// folder that `make .build/bin/foreign/built` fills.
func (f Foreign) Command(bin string) []string {
	folder := filepath.Join(bin, "foreign")
	args := []string{
		"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", foreignScript, "sh", f.Machine, filepath.Join(folder, "source", "templates"), f.Shared,
	}
	for _, path := range slices.Sorted(maps.Keys(f.Folders)) {
		args = append(args, f.Folders[path], path)
	}
	args = append(append(args, "--"), f.Env...)
	return append(append(args, filepath.Join(folder, f.Program)), f.Args...)
}

// ForeignSource is the folder with the source of NVIDIA's DRA driver: its chart, templates
// and examples.
func (c *Cluster) ForeignSource() string { return filepath.Join(c.Bin, "foreign", "source") }

// ForeignProgram is the path of a program that `make .build/bin/foreign/built` builds.
func (c *Cluster) ForeignProgram(name string) string { return filepath.Join(c.Bin, "foreign", name) }

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
	args := append([]string{"start", f.Name, "--log", c.ForeignLog(f.Name), "--"}, f.Command(c.Bin)...)
	if err := c.tool(ctx, args...); err != nil {
		return fmt.Errorf("start %s: %w", f.Name, err)
	}
	return nil
}

// RunForeign runs a program of NVIDIA's to its end, and returns its standard output. It
// needs no name.
func (c *Cluster) RunForeign(ctx context.Context, f Foreign) (string, error) {
	args := f.Command(c.Bin)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", f.Program, err, stderr.String())
	}
	return string(out), nil
}

// StopForeign ends a program of [Cluster.StartForeign], if it runs.
func (c *Cluster) StopForeign(ctx context.Context, name string) error {
	return c.tool(ctx, "stop", name)
}

// ForeignLog is where the output of a program of [Cluster.StartForeign] goes.
func (c *Cluster) ForeignLog(name string) string { return filepath.Join(c.StateDir, name+".log") }
