// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/sysfs"
)

// hardware is the node's GPUs, real or simulated, behind one library.
type hardware struct {
	*nvml.Library
	// machine is the root of the kernel's file systems.
	machine sysfs.Root
	roots   cdi.Roots
	// timeSlices sets the time slices of the GPUs, which NVML cannot.
	timeSlices ports.TimeSlices
	// remove removes files that only this process used.
	remove func() error
}

// Simulator opens the simulated GPUs of a model, whose state is in stateDir. It
// returns their library, which may reset GPUs if allowReset is set, and the root of
// the file system that shows them.
type Simulator func(model, stateDir string, allowReset bool, options ...nvml.Option) (library *nvml.Library, root string, err error)

// openHardware opens the GPUs' library. It calls nothing of real GPUs yet: the driver
// may be loaded later.
func openHardware(c *Config) (*hardware, error) {
	model, simulated := c.simulated()
	if !simulated {
		options := []nvml.Option{nvml.OwnCgroup(ownCgroup())}
		if c.MIG.AllowReset {
			options = append(options, nvml.AllowReset(nvml.ResetWith(gpu.DriverRoot(c.DriverRoot))))
		}
		return &hardware{
			Library:    nvml.Open(c.DriverRoot, options...),
			machine:    "/",
			roots:      cdi.Roots{Driver: c.DriverRoot, Dev: c.DevRoot, HostDriver: c.HostDriverRoot, HostDev: c.HostDevRoot},
			timeSlices: nvml.NewSMI(gpu.DriverRoot(c.DriverRoot)),
			remove:     func() error { return nil },
		}, nil
	}
	dir, remove := c.SimState, func() error { return nil }
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "gpu-sim-"); err != nil {
			return nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	library, root, err := c.Simulator(model, dir, c.MIG.AllowReset, nvml.OwnCgroup(ownCgroup()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s=%s: %w", c.Names.Hardware, c.Hardware, err), remove())
	}
	return &hardware{
		Library:    library,
		machine:    sysfs.Root(root),
		roots:      cdi.Roots{Driver: root, Dev: root},
		timeSlices: nvml.NewSMI(gpu.DriverRoot(root)),
		remove:     remove,
	}, nil
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

// hostDevRoot returns the folder that holds dev, as the container runtime sees it.
func (h *hardware) hostDevRoot() string { return cmp.Or(h.roots.HostDev, h.roots.Dev) }

// hostDriverRoot returns the driver root, as the container runtime sees it.
func (h *hardware) hostDriverRoot() string { return cmp.Or(h.roots.HostDriver, h.roots.Driver) }

// close shuts the library down. While a call is under way it does not: the process
// ends without that.
func (h *hardware) close() error {
	err := h.Close()
	if errors.Is(err, gpu.ErrInUse) {
		err = nil
	}
	return errors.Join(err, h.remove())
}
