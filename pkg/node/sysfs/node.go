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

// controlMinor is the minor of nvidiactl.
const controlMinor = 255

// EnsureDeviceNodes creates the missing device nodes of a GPU and of the driver below dev. It
// loads no kernel module. The error wraps [gpu.ErrNotReady] and names the nodes that CUDA
// programs need and that do not exist. Sources: proc/devices, proc/driver/nvidia/params.
func (r Root) EnsureDeviceNodes(dev Root, g gpu.GPU) error {
	params := r.path("proc", "driver", "nvidia", "params")
	err := errors.Join(
		r.ensureNode(dev, "nvidiactl", "nvidia", controlMinor, params),
		r.ensureNode(dev, fmt.Sprintf("nvidia%d", g.Minor), "nvidia", g.Minor, params),
		r.ensureNode(dev, "nvidia-uvm", "nvidia-uvm", 0, params),
	)
	// Only debuggers and profilers need it.
	_ = r.ensureNode(dev, "nvidia-uvm-tools", "nvidia-uvm", 1, params)
	return err
}

// ensureNode creates the device node below dev if it does not exist. owner is the driver's file
// with the owner and the mode of the node.
func (r Root) ensureNode(dev Root, name, module string, minor int, owner string) error {
	path := dev.path("dev", name)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("device node %s: %w: it is a folder, which must be removed", path, gpu.ErrNotReady)
	case errors.Is(err, fs.ErrNotExist):
		if err := r.makeNode(path, module, minor, owner); err != nil {
			return fmt.Errorf("device node %s: %w: it does not exist, and the agent cannot create it: %w", path, gpu.ErrNotReady, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("device node: %w: %w", gpu.ErrNotReady, err)
	}
	return nil
}

// makeNode creates a device node as nvidia-modprobe does.
func (r Root) makeNode(path, module string, minor int, owner string) error {
	major, err := r.major(module)
	if err != nil {
		return err
	}
	modify, err := numberIn(r.path("proc", "driver", "nvidia", "params"), "ModifyDeviceFiles:")
	if err == nil && modify == 0 {
		err = errors.New("the parameter NVreg_ModifyDeviceFiles of the kernel module forbids it")
	}
	mode, modeErr := numberIn(owner, "DeviceFileMode:")
	if err := errors.Join(err, modeErr); err != nil {
		return err
	}
	// Capabilities belong to root: their files name no owner.
	uid, _ := numberIn(owner, "DeviceFileUID:")
	gid, _ := numberIn(owner, "DeviceFileGID:")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(uint32(major), uint32(minor)))); err != nil {
		return err
	}
	// The mode of mknod passes through the umask.
	return errors.Join(os.Chown(path, uid, gid), os.Chmod(path, fs.FileMode(mode)&fs.ModePerm))
}

// major returns the major of a kernel module's devices. Drivers before 550.40 name those of
// the module nvidia "nvidia-frontend".
func (r Root) major(module string) (int, error) {
	data, err := os.ReadFile(r.path("proc", "devices"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 2 && (fields[1] == module || fields[1] == module+"-frontend") {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, fmt.Errorf("the kernel module %s is not loaded", module)
}
