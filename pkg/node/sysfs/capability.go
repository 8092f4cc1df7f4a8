// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// CapabilityNodes returns the container paths of a MIG device's capability nodes,
// such as "/dev/nvidia-caps/nvidia-cap30". A container needs them in addition to the
// nodes of the device's GPU: one for the GPU instance and one for the compute
// instance. The kernel assigns their minors. It creates missing nodes as
// [Root.EnsureDeviceNodes] does. The error wraps [gpu.ErrNotFound] if the
// instance is missing or a node cannot be created. Sources:
// proc/driver/nvidia/capabilities/gpu*/mig/gi*/access and …/ci*/access, or if the
// driver does not have these files, proc/driver/nvidia-caps/mig-minors.
func (r Root) CapabilityNodes(g gpu.GPU, gpuInstance, computeInstance int) ([]string, error) {
	var nodes []string
	for _, instance := range []string{
		fmt.Sprintf("gi%d", gpuInstance),
		fmt.Sprintf("gi%d/ci%d", gpuInstance, computeInstance),
	} {
		minor, err := r.capabilityMinor(g.Minor, instance)
		if err != nil {
			return nil, fmt.Errorf("capability of MIG instance %s on GPU %s: %w", instance, g.Address, err)
		}
		name := fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor)
		if err := r.ensureNode(r, name, "nvidia-caps", minor, r.accessFile(g.Minor, instance)); err != nil {
			return nil, fmt.Errorf("MIG instance %s on GPU %s: %w: %w; nvidia-modprobe creates it", instance, g.Address, gpu.ErrNotFound, err)
		}
		nodes = append(nodes, "/dev/"+name)
	}
	return nodes, nil
}

// MonitorNodes returns the container path of the node for monitoring MIG devices,
// such as "/dev/nvidia-caps/nvidia-cap2". A container with that node can monitor the
// MIG devices of all GPUs, without access to any of them. It returns none if the
// driver does not support MIG or the node does not exist yet. Sources:
// proc/driver/nvidia/capabilities/mig/monitor, or if the driver does not have this
// file, proc/driver/nvidia-caps/mig-minors.
func (r Root) MonitorNodes() ([]string, error) {
	minor, err := numberIn(r.path("proc", "driver", "nvidia", "capabilities", "mig", "monitor"), "DeviceFileMinor:")
	if errors.Is(err, fs.ErrNotExist) {
		minor, err = numberIn(r.path("proc", "driver", "nvidia-caps", "mig-minors"), "monitor")
	}
	name := fmt.Sprintf("nvidia-cap%d", minor)
	if err == nil {
		_, err = os.Stat(r.path("dev", "nvidia-caps", name))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("capability to monitor MIG devices: %w", err)
	}
	return []string{"/dev/nvidia-caps/" + name}, nil
}

// accessFile returns the path of the driver's file about an instance, such as "gi1/ci0".
func (r Root) accessFile(gpuMinor int, instance string) string {
	return r.path("proc", "driver", "nvidia", "capabilities", fmt.Sprintf("gpu%d", gpuMinor), "mig", instance, "access")
}

// capabilityMinor returns the minor of an instance, such as "gi1" or "gi1/ci0".
func (r Root) capabilityMinor(gpuMinor int, instance string) (int, error) {
	minor, err := numberIn(r.accessFile(gpuMinor, instance), "DeviceFileMinor:")
	if errors.Is(err, fs.ErrNotExist) {
		minor, err = numberIn(r.path("proc", "driver", "nvidia-caps", "mig-minors"), fmt.Sprintf("gpu%d/%s/access", gpuMinor, instance))
	}
	return minor, missing(err)
}

// numberIn returns the number that follows a word at the start of a line. The error
// wraps [fs.ErrNotExist] if no line starts with the word.
func numberIn(path, word string) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || fields[0] != word {
			continue
		}
		number, err := strconv.Atoi(fields[1])
		if err != nil || number < 0 {
			return 0, fmt.Errorf("%s: %w: %q", path, gpu.ErrCorrupt, lines.Text())
		}
		return number, nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s: no line %s: %w", path, word, fs.ErrNotExist)
}
