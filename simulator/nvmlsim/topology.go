// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// peer resolves the other GPU of a call about two.
func (d device) peer(other nvml.Device) (call, nvml.Return) {
	o, ok := other.(device)
	if !ok || o.library != d.library {
		return call{}, nvml.ERROR_INVALID_ARGUMENT
	}
	st, err := d.library.sim.load()
	if err != nil {
		return call{}, returnOf(err)
	}
	return o.resolve(st)
}

// GetTopologyCommonAncestor follows from the bridges, root complexes and NUMA
// nodes of the two.
func (d device) GetTopologyCommonAncestor(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	a, ret := d.enterGPU("DeviceGetTopologyCommonAncestor")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	b, ret := d.peer(other)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return commonAncestor(a.spec, b.spec), nvml.SUCCESS
}

func commonAncestor(a, b *spec) nvml.GpuTopologyLevel {
	if a == b {
		return nvml.TOPOLOGY_INTERNAL
	}
	if a.pcieRoot == b.pcieRoot {
		shared := 0
		for shared < min(len(a.gpu.Bridges), len(b.gpu.Bridges)) && a.gpu.Bridges[shared] == b.gpu.Bridges[shared] {
			shared++
		}
		switch below := len(a.gpu.Bridges) - shared; {
		case shared == 0:
			return nvml.TOPOLOGY_HOSTBRIDGE
		case below <= 1:
			return nvml.TOPOLOGY_SINGLE
		default:
			return nvml.TOPOLOGY_MULTIPLE
		}
	}
	if a.gpu.NUMANode != nil && b.gpu.NUMANode != nil && *a.gpu.NUMANode == *b.gpu.NUMANode {
		return nvml.TOPOLOGY_NODE
	}
	return nvml.TOPOLOGY_SYSTEM
}

// GetP2PStatus says whether two GPUs reach each other's memory: over NVLink
// where a link or common switches join them, over PCIe in any case. MIG takes
// it away.
func (d device) GetP2PStatus(other nvml.Device, capability nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
	a, ret := d.enterGPU("DeviceGetP2PStatus")
	if ret != nvml.SUCCESS {
		return nvml.P2P_STATUS_UNKNOWN, ret
	}
	b, ret := d.peer(other)
	if ret != nvml.SUCCESS {
		return nvml.P2P_STATUS_UNKNOWN, ret
	}
	if a.spec == b.spec || capability >= nvml.P2P_CAPS_INDEX_UNKNOWN {
		return nvml.P2P_STATUS_UNKNOWN, nvml.ERROR_INVALID_ARGUMENT
	}
	if a.gpu.MIGMode || b.gpu.MIGMode || capability == nvml.P2P_CAPS_INDEX_NVLINK && !joined(a, b) {
		return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
	}
	return nvml.P2P_STATUS_OK, nvml.SUCCESS
}

// joined reports whether an active NVLink path leads from a to b.
func joined(a, b call) bool {
	active := func(c call, n int) bool { return linkActive(c.spec, c.gpu, n) }
	for _, n := range a.spec.linksTo(b.spec.address) {
		if active(a, n) {
			return true
		}
	}
	switched := func(c call) bool {
		for n, l := range c.spec.links {
			if l.remote == "Switch" && active(c, n) {
				return true
			}
		}
		return false
	}
	return switched(a) && switched(b)
}

// relation is how nvidia-smi topo -m names the way from one GPU to another: over
// how many NVLinks, or else over which part of the PCIe tree.
func (n *node) relation(a, b *spec) string {
	up := func(s *spec, to func(linkSpec) bool) (links int) {
		for _, l := range s.links {
			if !l.down && to(l) {
				links++
			}
		}
		return links
	}
	toSwitch := func(l linkSpec) bool { return l.remote == remoteSwitch }
	links := min(up(a, toSwitch), up(b, toSwitch))
	for _, number := range a.linksTo(b.address) {
		if !a.links[number].down {
			links++
		}
	}
	if links > 0 {
		return fmt.Sprintf("NV%d", links)
	}
	switch commonAncestor(a, b) {
	case nvml.TOPOLOGY_SINGLE:
		return "PIX"
	case nvml.TOPOLOGY_MULTIPLE:
		return "PXB"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "PHB"
	case nvml.TOPOLOGY_NODE:
		return "NODE"
	default:
		return "SYS"
	}
}
