// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Backends of the driver for memory limits. Source: "MPS v3 Memory Partitioning" in
// NVIDIA's documents for release 615.
const (
	// MemoryLimitsDmem uses the kernel's controller dmem.
	MemoryLimitsDmem = "dmem"
	// MemoryLimitsMisc uses the driver's own accounts.
	MemoryLimitsMisc = "misc"
	// MemoryLimitsOff has the calls and refuses them, as with the driver's setting
	// RmMemacctMode=0.
	MemoryLimitsOff = "off"
)

// memoryLimitsRelease is the first driver with memory limits.
const memoryLimitsRelease = 615

// MemoryLimit limits the memory of a GPU for a cgroup and for all cgroups below it.
type MemoryLimit struct {
	// Cgroup is the folder, ID the cgroup that it was when the limit was set.
	Cgroup string    `json:"cgroup"`
	ID     cgroup.ID `json:"id"`
	// SoftBytes are guaranteed and not enforced. HardBytes are enforced.
	SoftBytes uint64 `json:"softBytes,omitempty"`
	HardBytes uint64 `json:"hardBytes"`
}

// exists reports whether the cgroup still exists. A limit ends with its cgroup.
func (m MemoryLimit) exists() bool {
	id, err := cgroup.Lookup(m.Cgroup)
	return err == nil && id == m.ID
}

// limitsOn returns the limits of a GPU that bound a process in the cgroups, the nearest
// first. The controller dmem counts a process in its cgroup and in all cgroups above. The
// driver's own accounts count it in the nearest cgroup with a limit only, so a limit of a
// parent does not bound children with limits.
func (n *node) limitsOn(g *GPUState, cgroups []cgroup.ID) []MemoryLimit {
	var limits []MemoryLimit
	for _, id := range cgroups {
		i := slices.IndexFunc(g.MemoryLimits, func(m MemoryLimit) bool { return m.ID == id })
		if i < 0 {
			continue
		}
		limits = append(limits, g.MemoryLimits[i])
		if n.model.MemoryLimits == MemoryLimitsMisc {
			break
		}
	}
	return limits
}

// usedUnder returns the memory of a GPU that counts against a limit.
func (n *node) usedUnder(g *GPUState, limit MemoryLimit) uint64 {
	return usedBytes(slices.DeleteFunc(slices.Clone(g.Processes), func(p Process) bool {
		return !slices.Contains(n.limitsOn(g, p.Cgroups), limit)
	}))
}

// checkMemoryLimits returns [simerr.ErrNoCapacity] if a limit of the GPU refuses the
// memory of the process.
func (n *node) checkMemoryLimits(g *GPUState, p Process) error {
	for _, limit := range n.limitsOn(g, p.Cgroups) {
		if used := n.usedUnder(g, limit); used+p.MemoryBytes > limit.HardBytes {
			return fmt.Errorf("%w: %d MiB wanted, and %d of %d MiB left in the cgroup %s", simerr.ErrNoCapacity,
				p.MemoryBytes>>20, (limit.HardBytes-min(used, limit.HardBytes))>>20, limit.HardBytes>>20, limit.Cgroup)
		}
	}
	return nil
}

// reportedLimit returns the limit that a process in the cgroups sees as the size of the
// GPU. It returns nil if the process sees the GPU's own size. With the controller dmem
// it is the limit of the process' own cgroup: those above are enforced and not
// reported.
func (n *node) reportedLimit(g *GPUState, cgroups []cgroup.ID) *MemoryLimit {
	if n.model.MemoryLimits == MemoryLimitsDmem && len(cgroups) > 1 {
		cgroups = cgroups[:1]
	}
	limits := n.limitsOn(g, cgroups)
	if len(limits) == 0 {
		return nil
	}
	return &limits[0]
}

// cgroupsOf returns the cgroups of a process. It returns none if the node's driver has
// no memory limits, if the machine has no cgroups of version 2, or if the process
// exists only in the simulation.
func (n *node) cgroupsOf(pid int) ([]cgroup.ID, error) {
	if !n.hasMemoryLimits() {
		return nil, nil
	}
	ids, err := cgroup.Ancestry(pid)
	if errors.Is(err, simerr.ErrNotSupported) || errors.Is(err, simerr.ErrNotFound) {
		return nil, nil
	}
	return ids, err
}

// hasMemoryLimits reports whether the node's driver has memory limits, even if they are
// switched off.
func (n *node) hasMemoryLimits() bool { return n.model.MemoryLimits != "" }

// Reservation is the part of a cgroup's soft limit that comes from the cgroups below
// it. The driver has added it.
type Reservation struct {
	ID    cgroup.ID `json:"id"`
	Bytes uint64    `json:"bytes"`
}

// reservedBelow returns the soft limits of the cgroups below a cgroup.
func (g *GPUState) reservedBelow(id cgroup.ID) uint64 {
	var bytes uint64
	for _, r := range g.Reservations {
		if r.ID == id {
			bytes += r.Bytes
		}
	}
	return bytes
}

// reserveAbove adds the change of a cgroup's soft limit to all cgroups above it. The
// driver does so with the controller dmem. It does not see the end of a cgroup, so the
// soft limit of a cgroup that is removed stays there.
func (c call) reserveAbove(folder string, id cgroup.ID, soft uint64) error {
	if c.node.model.MemoryLimits != MemoryLimitsDmem {
		return nil
	}
	var before uint64
	if i := slices.IndexFunc(c.gpu.MemoryLimits, func(m MemoryLimit) bool { return m.ID == id }); i >= 0 {
		before = c.gpu.MemoryLimits[i].SoftBytes
	}
	if soft == before {
		return nil
	}
	for parent := filepath.Dir(folder); ; parent = filepath.Dir(parent) {
		above, err := cgroup.Lookup(parent)
		if err != nil || above == cgroup.RootID {
			return err
		}
		i := slices.IndexFunc(c.gpu.Reservations, func(r Reservation) bool { return r.ID == above })
		if i < 0 {
			i, c.gpu.Reservations = len(c.gpu.Reservations), append(c.gpu.Reservations, Reservation{ID: above})
		}
		c.gpu.Reservations[i].Bytes += soft - before
	}
}

// SetMemoryLimits_v1 sets the limits of a cgroup. It refuses a GPU in MIG mode, as the
// driver supports no limits there. Where the controller dmem is not enabled down to the
// cgroup, the driver returns "not found": a [CallFault] simulates that.
func (d device) SetMemoryLimits_v1(folder string, soft, hard uint64) nvml.Return { //nolint:revive // the name is go-nvml's
	if !d.library.sim.node.hasMemoryLimits() {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return d.set("DeviceSetMemoryLimits_v1", func(c call) nvml.Return {
		switch {
		case c.gpu.MIGMode, c.node.model.MemoryLimits == MemoryLimitsOff:
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
		if err := c.reserveAbove(folder, id, soft); err != nil {
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
// use. For a cgroup without limits it returns "not supported", as was measured with either
// backend. nvml.h documents "not found", which [Kind.Refusals] or a [CallFault] simulates.
func (d device) GetMemoryLimits_v1(folder string) (nvml.MemoryLimits_v1, nvml.Return) { //nolint:revive // the name is go-nvml's
	if !d.library.sim.node.hasMemoryLimits() {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	c, ret := d.enterGPU(memoryLimitsCall)
	if ret != nvml.SUCCESS {
		return nvml.MemoryLimits_v1{}, ret
	}
	if c.gpu.MIGMode || c.node.model.MemoryLimits == MemoryLimitsOff {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_SUPPORTED
	}
	id, err := cgroup.Lookup(folder)
	if err != nil {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_OPERATING_SYSTEM
	}
	for _, m := range c.gpu.MemoryLimits {
		if m.ID == id {
			return nvml.MemoryLimits_v1{NameSpace: folder, SoftLimit: m.SoftBytes + c.gpu.reservedBelow(id), HardLimit: m.HardBytes, CurrentUsed: c.node.usedUnder(c.gpu, m)}, nvml.SUCCESS
		}
	}
	if reserved := c.gpu.reservedBelow(id); reserved > 0 {
		return nvml.MemoryLimits_v1{NameSpace: folder, SoftLimit: reserved, HardLimit: nvml.DEVICE_MEMORY_LIMIT_MAX}, nvml.SUCCESS
	}
	return nvml.MemoryLimits_v1{}, c.spec.kind.withoutMemoryLimits()
}
