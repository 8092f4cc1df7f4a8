// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// linkEnd is one end of an NVLink.
type linkEnd struct{ gpu, link int }

// linkEnds returns the ends of a link on GPUs of this node: the given end, and the
// far end if that is a GPU. Several links between two GPUs have the same order on
// both sides.
func (n *node) linkEnds(index, link int) ([]linkEnd, error) {
	s := n.gpus[index]
	if link < 0 || link >= len(s.links) {
		return nil, fmt.Errorf("link %d of GPU %d: %w: it has %d links", link, index, simerr.ErrNotFound, len(s.links))
	}
	ends := []linkEnd{{index, link}}
	l := s.links[link]
	if l.remote != remoteGPU || l.address == nil {
		return ends, nil
	}
	for i, other := range n.gpus {
		if other.address == *l.address {
			nth := slices.Index(s.linksTo(other.address), link)
			ends = append(ends, linkEnd{i, other.linksTo(s.address)[nth]})
		}
	}
	return ends, nil
}

// linkActive reports whether a link carries traffic.
func linkActive(s *spec, g *GPUState, link int) bool {
	return !s.links[link].down && !slices.Contains(g.LinksDown, link)
}

// enterLink begins a call about one NVLink.
func (d device) enterLink(method string, link int) (call, nvml.Return) {
	c, ret := d.enterGPU(method)
	switch {
	case ret != nvml.SUCCESS:
		return call{}, ret
	case len(c.spec.links) == 0:
		return call{}, nvml.ERROR_NOT_SUPPORTED
	case link < 0 || link >= len(c.spec.links):
		return call{}, nvml.ERROR_INVALID_ARGUMENT
	}
	return c, nvml.SUCCESS
}

// enterRemote begins a call about the far end of an NVLink. An inactive link
// does not know it.
func (d device) enterRemote(method string, link int) (linkSpec, nvml.Return) {
	c, ret := d.enterLink(method, link)
	if ret != nvml.SUCCESS {
		return linkSpec{}, ret
	}
	if !linkActive(c.spec, c.gpu, link) {
		return linkSpec{}, nvml.ERROR_NOT_SUPPORTED
	}
	return c.spec.links[link], nvml.SUCCESS
}

func (d device) GetNvLinkState(link int) (nvml.EnableState, nvml.Return) {
	c, ret := d.enterLink("DeviceGetNvLinkState", link)
	if ret != nvml.SUCCESS {
		return nvml.FEATURE_DISABLED, ret
	}
	return enableState(linkActive(c.spec, c.gpu, link)), nvml.SUCCESS
}

func (d device) GetNvLinkVersion(link int) (uint32, nvml.Return) {
	c, ret := d.enterLink("DeviceGetNvLinkVersion", link)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return uint32(nvlinkVersions[c.spec.kind.NVLinkVersion]), nvml.SUCCESS
}

func (d device) GetNvLinkCapability(link int, capability nvml.NvLinkCapability) (uint32, nvml.Return) {
	_, ret := d.enterLink("DeviceGetNvLinkCapability", link)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	switch capability {
	case nvml.NVLINK_CAP_P2P_SUPPORTED, nvml.NVLINK_CAP_SYSMEM_ACCESS, nvml.NVLINK_CAP_P2P_ATOMICS, nvml.NVLINK_CAP_VALID:
		return 1, nvml.SUCCESS
	case nvml.NVLINK_CAP_SYSMEM_ATOMICS, nvml.NVLINK_CAP_SLI_BRIDGE:
		return 0, nvml.SUCCESS
	default:
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
}

func (d device) GetNvLinkRemoteDeviceType(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	l, ret := d.enterRemote("DeviceGetNvLinkRemoteDeviceType", link)
	if ret != nvml.SUCCESS {
		return nvml.NVLINK_DEVICE_TYPE_UNKNOWN, ret
	}
	return linkRemotes[l.remote], nvml.SUCCESS
}

// GetNvLinkRemotePciInfo is not supported where the far end is not on the PCI
// bus of this machine.
func (d device) GetNvLinkRemotePciInfo(link int) (nvml.PciInfo, nvml.Return) {
	l, ret := d.enterRemote("DeviceGetNvLinkRemotePciInfo", link)
	if ret != nvml.SUCCESS {
		return nvml.PciInfo{}, ret
	}
	if l.address == nil {
		return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	for _, other := range d.library.sim.node.gpus {
		if other.address == *l.address {
			return pciInfo(other.address, other.pciDevice, other.pciSubsystem), nvml.SUCCESS
		}
	}
	return pciInfo(*l.address, 0, 0), nvml.SUCCESS
}
