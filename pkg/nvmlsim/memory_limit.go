// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Backends of the driver for memory limits. Source: "MPS v3 Memory Partitioning" in
// NVIDIA's documents for release 615.
const (
	// MemoryLimitsDmem uses the kernel's controller dmem.
	MemoryLimitsDmem = "dmem"
	// MemoryLimitsMisc uses the driver's own accounts.
	MemoryLimitsMisc = "misc"
)

// memoryLimitsRelease is the first driver with memory limits.
const memoryLimitsRelease = 615

// MemoryLimit is the memory of a GPU that the processes in a cgroup can have, those in
// the cgroups below it included.
type MemoryLimit struct {
	// Cgroup is the folder, ID the cgroup that it was when the limit was set.
	Cgroup string    `json:"cgroup"`
	ID     cgroup.ID `json:"id"`
	// SoftBytes are guaranteed and not enforced. HardBytes are enforced.
	SoftBytes uint64 `json:"softBytes,omitempty"`
	HardBytes uint64 `json:"hardBytes"`
}

// used returns the memory that the processes in the cgroup have of the GPU.
func (m MemoryLimit) used(g *GPUState) uint64 {
	return usedBytes(slices.DeleteFunc(slices.Clone(g.Processes), func(p Process) bool { return !slices.Contains(p.Cgroups, m.ID) }))
}

// exists reports whether the cgroup still exists. A limit ends with its cgroup.
func (m MemoryLimit) exists() bool {
	id, err := cgroup.Lookup(m.Cgroup)
	return err == nil && id == m.ID
}

// checkMemoryLimits returns [gpu.ErrNoCapacity] if a limit of the GPU refuses the
// memory of the process.
func checkMemoryLimits(g *GPUState, p Process) error {
	for _, limit := range g.MemoryLimits {
		if !slices.Contains(p.Cgroups, limit.ID) {
			continue
		}
		if used := limit.used(g); used+p.MemoryBytes > limit.HardBytes {
			return fmt.Errorf("%w: %d MiB wanted, and %d of %d MiB left in the cgroup %s", gpu.ErrNoCapacity,
				p.MemoryBytes>>20, (limit.HardBytes-min(used, limit.HardBytes))>>20, limit.HardBytes>>20, limit.Cgroup)
		}
	}
	return nil
}

// tightest returns the limit with the least memory among the limits of the cgroups;
// nil if they have none.
func (g *GPUState) tightest(ids []cgroup.ID) *MemoryLimit {
	var found *MemoryLimit
	for i := range g.MemoryLimits {
		limit := &g.MemoryLimits[i]
		if slices.Contains(ids, limit.ID) && (found == nil || limit.HardBytes < found.HardBytes) {
			found = limit
		}
	}
	return found
}

// cgroupsOf returns the cgroups of a process; none if the node's driver has no memory
// limits, on a machine without cgroups of version 2, and for a process that exists only
// in the simulation.
func (n *node) cgroupsOf(pid int) ([]cgroup.ID, error) {
	if !n.hasMemoryLimits() {
		return nil, nil
	}
	ids, err := cgroup.Ancestry(pid)
	if errors.Is(err, gpu.ErrNotSupported) || errors.Is(err, gpu.ErrNotFound) {
		return nil, nil
	}
	return ids, err
}

// hasMemoryLimits reports whether the node's driver has memory limits.
func (n *node) hasMemoryLimits() bool { return n.model.MemoryLimits != "" }

// SetMemoryLimits_v1 sets the limits of a cgroup. It refuses a GPU in MIG mode, as the
// driver supports no limits there.
func (d device) SetMemoryLimits_v1(folder string, soft, hard uint64) nvml.Return { //nolint:revive // the name is go-nvml's
	if !d.library.sim.node.hasMemoryLimits() {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return d.set("DeviceSetMemoryLimits_v1", func(c call) nvml.Return {
		switch {
		case c.gpu.MIGMode:
			return nvml.ERROR_NOT_SUPPORTED
		case os.Geteuid() != 0:
			return nvml.ERROR_NO_PERMISSION
		case soft > hard, hard != nvml.DEVICE_MEMORY_LIMIT_MAX && hard > c.spec.kind.MemoryMiB<<20:
			return nvml.ERROR_INVALID_ARGUMENT
		}
		id, err := cgroup.Lookup(folder)
		if err != nil || id == cgroup.RootID {
			return nvml.ERROR_OPERATING_SYSTEM
		}
		c.gpu.MemoryLimits = slices.DeleteFunc(c.gpu.MemoryLimits, func(m MemoryLimit) bool { return m.ID == id || !m.exists() })
		if soft != 0 || hard != nvml.DEVICE_MEMORY_LIMIT_MAX {
			c.gpu.MemoryLimits = append(c.gpu.MemoryLimits, MemoryLimit{Cgroup: folder, ID: id, SoftBytes: soft, HardBytes: hard})
		}
		return nvml.SUCCESS
	})
}

// GetMemoryLimits_v1 returns the limits of a cgroup and the memory that its processes
// use. For a cgroup without limits, nvml.h documents "not found" and NVIDIA's documents of
// MPS "not supported". The simulator returns one with each backend.
func (d device) GetMemoryLimits_v1(folder string) (nvml.MemoryLimits_v1, nvml.Return) { //nolint:revive // the name is go-nvml's
	if !d.library.sim.node.hasMemoryLimits() {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	c, ret := d.enterGPU("DeviceGetMemoryLimits_v1")
	if ret != nvml.SUCCESS {
		return nvml.MemoryLimits_v1{}, ret
	}
	if c.gpu.MIGMode {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_SUPPORTED
	}
	id, err := cgroup.Lookup(folder)
	if err != nil {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_OPERATING_SYSTEM
	}
	for _, m := range c.gpu.MemoryLimits {
		if m.ID == id {
			return nvml.MemoryLimits_v1{NameSpace: folder, SoftLimit: m.SoftBytes, HardLimit: m.HardBytes, CurrentUsed: m.used(c.gpu)}, nvml.SUCCESS
		}
	}
	if c.node.model.MemoryLimits == MemoryLimitsMisc {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_FOUND
}
