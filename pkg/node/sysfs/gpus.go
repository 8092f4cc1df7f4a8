// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// vendorNVIDIA is NVIDIA's PCI vendor ID.
	vendorNVIDIA = "0x10de"
	// driverName is the kernel driver of the GPUs. A GPU bound to another driver,
	// such as vfio-pci, belongs to another program.
	driverName = "nvidia"
)

// gpuClasses returns the PCI classes of GPUs: VGA controller and 3D controller.
// NVSwitch chips and the sound devices of GPUs have others.
func gpuClasses() []string { return []string{"0x0300", "0x0302"} }

// GPUs returns the PCI addresses of the GPUs that are bound to NVIDIA's kernel
// driver, in ascending order. It omits GPUs in the driver's parameter
// NVreg_ExcludedGpus. It returns none if the kernel has no PCI bus. Sources:
// sys/bus/pci/devices/*/{vendor,class,driver} and
// proc/driver/nvidia/gpus/*/information.
func (r Root) GPUs() ([]gpu.PCIAddress, error) {
	devices, err := os.ReadDir(r.path("sys", "bus", "pci", "devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the PCI devices: %w", err)
	}
	var addresses []gpu.PCIAddress
	var errs []error
	for _, device := range devices {
		is, err := r.isGPU(device.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("PCI device %s: %w", device.Name(), err))
		}
		if !is {
			continue
		}
		address, err := gpu.ParsePCIAddress(device.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		addresses = append(addresses, address)
	}
	slices.SortFunc(addresses, gpu.PCIAddress.Compare)
	return addresses, errors.Join(errs...)
}

// isGPU reports whether a PCI device is a GPU that NVIDIA's driver uses.
func (r Root) isGPU(device string) (bool, error) {
	vendor, err := r.pciFile(device, "vendor")
	if err != nil || vendor != vendorNVIDIA {
		return false, err
	}
	class, err := r.pciFile(device, "class")
	if err != nil || !slices.ContainsFunc(gpuClasses(), func(c string) bool { return strings.HasPrefix(class, c) }) {
		return false, err
	}
	driver, err := os.Readlink(r.path("sys", "bus", "pci", "devices", device, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || filepath.Base(driver) != driverName {
		return false, err
	}
	excluded, err := r.isExcluded(device)
	return !excluded && err == nil, err
}

// pciFile returns the content of a file of a PCI device, or "" if the device has
// disappeared.
func (r Root) pciFile(device, name string) (string, error) {
	data, err := os.ReadFile(r.path("sys", "bus", "pci", "devices", device, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// isExcluded reports whether the driver's parameter NVreg_ExcludedGpus excludes the
// GPU. NVML does not list excluded GPUs.
func (r Root) isExcluded(device string) (bool, error) {
	data, err := os.ReadFile(r.path("proc", "driver", "nvidia", "gpus", device, "information"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if key == "GPU Excluded" {
			return strings.TrimSpace(value) == "Yes", err
		}
	}
	return false, err
}
