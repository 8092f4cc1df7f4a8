// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
)

// hardware is the node's GPUs behind one library.
type hardware struct {
	*nvml.Library
	// machine is the root of the kernel's file systems.
	machine sysfs.Root
	roots   cdi.Roots
	// timeSlices sets the time slices of the GPUs, which NVML cannot.
	timeSlices ports.TimeSlices
	// checkContainers returns why containers have no cgroups whose memory the driver can limit.
	checkContainers func() error
}

// openHardware opens the GPUs' library. It calls nothing of the GPUs yet: the driver
// may be loaded later.
func openHardware(c *Config) *hardware {
	options := []nvml.Option{nvml.OwnCgroup(ownCgroup())}
	if c.MIG.AllowReset {
		options = append(options, nvml.AllowReset(nvml.ResetWith(gpu.DriverRoot(c.DriverRoot))))
	}
	return &hardware{
		Library:         nvml.Open(c.DriverRoot, options...),
		machine:         sysfs.Root(c.MachineRoot),
		roots:           cdi.Roots{Driver: c.DriverRoot, Dev: c.DevRoot, HostDriver: c.HostDriverRoot, HostDev: c.HostDevRoot},
		timeSlices:      nvml.NewSMI(gpu.DriverRoot(c.DriverRoot)),
		checkContainers: cgroup.CheckContainers,
	}
}

// ownCgroup returns the folder of this process' cgroup. It returns "" if the folder
// cannot be found, as on a node with cgroups of version 1.
func ownCgroup() string {
	folder, err := cgroup.OfProcess(os.Getpid())
	if err != nil {
		return ""
	}
	return folder
}

// localDevRoot returns the folder that holds dev, as this process sees it.
func (h *hardware) localDevRoot() string { return cmp.Or(h.roots.Dev, "/") }

// ensureDeviceNodes creates missing device nodes of a GPU.
func (h *hardware) ensureDeviceNodes(g gpu.GPU) error {
	return h.machine.EnsureDeviceNodes(sysfs.Root(h.localDevRoot()), g)
}

// hostDevRoot returns the folder that holds dev, as the container runtime sees it.
func (h *hardware) hostDevRoot() string { return cmp.Or(h.roots.HostDev, h.roots.Dev) }

// hostDriverRoot returns the driver root, as the container runtime sees it.
func (h *hardware) hostDriverRoot() string { return cmp.Or(h.roots.HostDriver, h.roots.Driver) }

// close shuts the library down. While a call is under way it does not: the process
// ends without that.
func (h *hardware) close() error {
	err := h.Close()
	if errors.Is(err, gpu.ErrInUse) {
		return nil
	}
	return err
}
