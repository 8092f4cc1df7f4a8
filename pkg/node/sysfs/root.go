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

// Root is the directory that contains the sys, proc and dev of a node, such as "/".
type Root string

func (r Root) path(elements ...string) string {
	return filepath.Join(append([]string{string(r)}, elements...)...)
}

// BootID returns the identifier of the current boot of the machine. Source:
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

// DriverLoad returns an identifier of the current load of the kernel's nvidia module.
// It differs after the module was unloaded and loaded. The error wraps
// [gpu.ErrNotReady] if the module is not loaded. Source: the inode of
// sys/module/nvidia, which is new for each load. The times of files in sysfs are not
// usable: they also change without a load.
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
