// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// GPU is a whole GPU. A claim takes all of it, or a share of its memory.
const GPU Kind = v1alpha1.DeviceTypeGPU

// Whole returns the name of a whole GPU.
func Whole(address gpu.PCIAddress) Name { return Name{Kind: GPU, Address: address} }

func wholeGPU() rules {
	return rules{
		kind: GPU, scope: ScopeGPU, takes: TakesMemory,
		configuration: Configuration{Own: v1alpha1.KindGpuConfig, Noun: "a GPU"},
		class:         Class{Capacities: "memory or compute for a GPU"},
		attributes:    gpuAttributes, capacities: gpuCapacities, consume: consumeGPU,
	}
}

func gpuAttributes(f Inputs, a Attributes) {
	g := f.GPU
	a.name(v1alpha1.AttributeUUID, g.UUID)
	a.product(f)
	a.name(deviceattribute.StandardDeviceAttributePCIBusID, g.Address.String())
	a.locality(f)
	a.name(v1alpha1.AttributePCIeSwitch, g.PCIeSwitch)

	a.flag(v1alpha1.AttributeMIGCapable, &g.MIG.Capable)
	if g.MIG.Capable && !f.MIGModeVaries {
		a.name(v1alpha1.AttributeMIGMode, onOff(g.MIG.Enabled))
	}
	if g.Fabric != nil {
		a.name(v1alpha1.AttributeFabricClusterUUID, g.Fabric.ClusterUUID)
		a.number(v1alpha1.AttributeFabricCliqueID, int(g.Fabric.CliqueID))
	}
	a.flag(v1alpha1.AttributeECCEnabled, g.ECCEnabled)
	a.flag(v1alpha1.AttributePersistenceMode, g.PersistenceMode)
	a.name(v1alpha1.AttributeAddressingMode, g.AddressingMode)
	if g.Multiprocessors > 0 {
		a.number(v1alpha1.AttributeMultiprocessors, g.Multiprocessors)
	}
	a.shares(f)
	a.nvlink(f)
}

// consumeGPU accepts less than the smallest share. The scheduler keeps to the smallest share
// that is published, which may have been raised after it allocated this one.
func consumeGPU(a Amounts, consumed Consumed) (Share, error) {
	if a.Smallest = a.Step; a.Step.Cmp(a.Memory) > 0 {
		a.Smallest = a.Memory
	}
	return a.share(consumed)
}

func gpuCapacities(a Amounts) Capacities {
	memory := resourceapi.DeviceCapacity{Value: a.Memory}
	compute := resourceapi.DeviceCapacity{Value: number(WholeCompute)}
	if a.Shared {
		memory.RequestPolicy = policy(a.Memory, a.Smallest, a.Step)
		// The range has no step, which would cost every node a hundred bytes: the
		// chart's policies and the agent refuse parts of a percent.
		compute.RequestPolicy = policy(number(0), number(0), number(0))
		if a.Compute > WholeCompute {
			compute.Value = number(a.Compute)
			most := number(WholeCompute)
			compute.RequestPolicy.ValidRange.Max = &most
		}
	}
	return Capacities{v1alpha1.CapacityMemory: memory, v1alpha1.CapacityCompute: compute}
}

// nvlink adds the NVLink attributes. Peers and cliques are lists if the cluster
// accepts list attributes and the device stays within the API's limit on values.
func (a Attributes) nvlink(f Inputs) {
	n, links := f.NVLink, f.GPU.ActiveLinks()
	if links == 0 {
		// A selector fails on a missing attribute. The API has no empty list.
		if none := ""; f.GPU.Links != nil && !f.Lists {
			a[v1alpha1.AttributeNVLinkPeers] = resourceapi.DeviceAttribute{StringValue: &none}
		}
		return
	}
	a.number(v1alpha1.AttributeNVLinkLinks, links)
	a.release(v1alpha1.AttributeNVLinkVersion, f.GPU.NVLinkVersion)
	a.flag(v1alpha1.AttributeNVLinkSwitch, f.GPU.BehindSwitch())
	a.name(v1alpha1.AttributeNVLinkDomain, n.Domain)

	devices := make([]string, len(n.Peers))
	for i, peer := range n.Peers {
		devices[i] = peer.DeviceName()
	}
	left := resourceapi.ResourceSliceMaxAttributeValuesPerDevice - a.values()
	if !f.Lists || len(devices)+len(n.Cliques) > left {
		a.name(v1alpha1.AttributeNVLinkPeers, Enumerate(n.Peers))
		return
	}
	a.names(v1alpha1.AttributeNVLinkPeers, devices)
	if !slices.Contains(n.Cliques, "") {
		a.names(v1alpha1.AttributeNVLinkCliques, n.Cliques)
	}
}

// Enumerate lists GPUs in one attribute value: by their short names
// ("1b-00,4a-00"), or by their buses ("1b,4a") if the names are too long. It
// returns "" if the buses are too long as well, or ambiguous.
func Enumerate(addresses []gpu.PCIAddress) string {
	for _, spell := range []func(gpu.PCIAddress) string{gpu.PCIAddress.ShortName, busName} {
		names := make([]string, len(addresses))
		for i, address := range addresses {
			names[i] = spell(address)
		}
		list := strings.Join(names, ",")
		slices.Sort(names)
		if len(list) <= resourceapi.DeviceAttributeMaxValueLength && len(slices.Compact(names)) == len(addresses) {
			return list
		}
	}
	return ""
}

// busName returns the bus of a GPU, with its domain if that is not zero.
func busName(address gpu.PCIAddress) string {
	if address.Domain == 0 {
		return fmt.Sprintf("%02x", address.Bus)
	}
	return fmt.Sprintf("%04x-%02x", address.Domain, address.Bus)
}
