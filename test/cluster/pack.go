// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/travel"
)

// packed are programs that a node needs and another machine may lack. iptables-save and the
// others with that name are links to one program.
var packed = []string{
	"busybox", "conntrack", "ip", "nsenter", "stat", "unshare",
	"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
}

// Pack writes all programs of a cluster into a folder, for a machine with Linux and nothing else.
// With the folder's bin first in PATH, and as --bin, the cluster comes up there.
func Pack(ctx context.Context, l Layout, o Options, dir string) error {
	if err := prepareMachine(ctx, l, o); err != nil {
		return err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	for _, target := range build.Targets(o.Release, o.ContainerRuntime) {
		if err := target.CopyTo(bin, l.Bin); err != nil {
			return fmt.Errorf("pack %s: %w", target.Name, err)
		}
	}
	for _, name := range packed {
		path, err := host.LookPath(name)
		if err != nil {
			return fmt.Errorf("pack: %w", err)
		}
		if err := travel.Pack(path, dir, "XTABLES_LIBDIR=$d/lib/xtables"); err != nil {
			return fmt.Errorf("pack: %w", err)
		}
	}
	runc, err := host.LookPath("runc")
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	// runc executes itself with an environment of its own. So no loader and no variable can give it
	// a library, and it takes the libseccomp and the C library of the other machine.
	if err := travel.Copy(runc, filepath.Join(bin, "runc")); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	// iptables opens its modules by itself.
	modules, err := filepath.Glob("/usr/lib/*-linux-gnu/xtables/*.so")
	if err != nil || len(modules) == 0 {
		return fmt.Errorf("pack: the modules of iptables were not found: %w", err)
	}
	for _, module := range modules {
		if err := travel.Copy(module, filepath.Join(dir, "lib", "xtables", filepath.Base(module))); err != nil {
			return fmt.Errorf("pack: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return travel.Copy(self, filepath.Join(bin, "cluster"))
}
