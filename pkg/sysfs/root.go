// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Root is the directory with a node's sys, proc and dev; "/" for the machine
// itself.
type Root string

func (r Root) path(elements ...string) string {
	return filepath.Join(append([]string{string(r)}, elements...)...)
}

// BootID identifies the current boot of the machine. Source:
// proc/sys/kernel/random/boot_id.
func (r Root) BootID() (string, error) {
	data, err := os.ReadFile(r.path("proc", "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", fmt.Errorf("read the boot ID: %w: %s is empty", gpu.ErrCorrupt, r.path("proc", "sys", "kernel", "random", "boot_id"))
	}
	return id, nil
}

// DriverLoad identifies the present load of the kernel's nvidia module: it returns
// another text once the module was unloaded and loaded. The error wraps
// [gpu.ErrNotReady] if it is not loaded. Source: the inode of sys/module/nvidia,
// which the kernel numbers afresh for every load; times in sysfs change at will.
func (r Root) DriverLoad() (string, error) {
	var info unix.Stat_t
	path := r.path("sys", "module", "nvidia")
	err := unix.Stat(path, &info)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the load of the driver: %w: no %s", gpu.ErrNotReady, path)
	}
	if err != nil {
		return "", fmt.Errorf("read the load of the driver: %s: %w", path, err)
	}
	return strconv.FormatUint(info.Ino, 10), nil
}

// DeviceNodes gives the container paths of the device nodes that belong to one
// GPU alone, "/dev/nvidia0", after a check that they exist below the root. The
// nodes that all GPUs share come with the driver files. It fails with
// [gpu.ErrNotFound] where a node is missing.
func (r Root) DeviceNodes(g gpu.GPU) ([]string, error) {
	name := fmt.Sprintf("nvidia%d", g.Minor)
	_, err := os.Stat(r.path("dev", name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("device node of GPU %s: %w: %s does not exist; nvidia-smi or nvidia-modprobe creates it", g.Address, gpu.ErrNotFound, r.path("dev", name))
	}
	if err != nil {
		return nil, fmt.Errorf("device node of GPU %s: %w", g.Address, err)
	}
	return []string{"/dev/" + name}, nil
}
