// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Attributes are the attributes of one device by their name. A value that is not
// known, or that the API would refuse, is left out.
type Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// Inputs are the facts from which the attributes of a device are derived.
type Inputs struct {
	// Node has the versions of the driver. Its GPUs are not read.
	Node gpu.Node
	// GPU of the device; unset if the scope of the kind is [ScopeNode].
	GPU gpu.GPU
	// NVLink describes the links to the node's other GPUs.
	NVLink NVLink
	// Sharing is the mechanism that limits shares of the device. Memory and Compute
	// are how strictly it does so.
	Sharing         string
	Memory, Compute v1alpha1.Enforcement
	// MIGModeVaries reports whether claims switch the MIG mode on and off. The mode
	// then cannot be an attribute of the GPU.
	MIGModeVaries bool
	// Profile of a partition.
	Profile gpu.Profile
	// UUID of a partition that exists before it is claimed.
	UUID string
	// Located adds the product and the PCIe root of a partition's GPU. All also adds how
	// shares of it are limited. They are options because a node can have a hundred
	// partitions, and repeats every attribute for each.
	Located, All bool
	// Lists publishes attributes as lists that can have several values.
	Lists bool
}

// NVLink describes the links of a GPU to the other GPUs of its node.
type NVLink struct {
	// Domain names a group of GPUs in which every pair is linked.
	Domain string
	// Peers are the GPUs at the other ends of the links.
	Peers []gpu.PCIAddress
	// Cliques names every largest group of linked GPUs that the GPU belongs to. An
	// empty name means that the group has none that the API accepts.
	Cliques []string
}

// Attributes returns the attributes of a device of the kind.
func (k Kind) Attributes(f Inputs) Attributes {
	a := Attributes{}
	a.name(v1alpha1.AttributeType, string(k))
	if add := k.rules().attributes; add != nil {
		add(f, a)
	}
	return a
}

// product adds the attributes that GPUs of one model and one driver have in common.
func (a Attributes) product(f Inputs) {
	a.text(v1alpha1.AttributeProductName, f.GPU.ProductName)
	a.text(v1alpha1.AttributeBrand, f.GPU.Brand)
	a.text(v1alpha1.AttributeArchitecture, f.GPU.Architecture)
	a.release(v1alpha1.AttributeCUDAComputeCapability, f.GPU.ComputeCapability)
	a.driver(f)
}

// driver adds the versions of the node's driver.
func (a Attributes) driver(f Inputs) {
	a.version(v1alpha1.AttributeDriverVersion, f.Node.DriverVersion)
	a.release(v1alpha1.AttributeCUDADriverVersion, f.Node.CUDADriverVersion)
}

// locality adds the GPU's place in the machine. A GPU has one PCIe root, so that attribute
// is never a list.
func (a Attributes) locality(f Inputs) {
	a.name(deviceattribute.StandardDeviceAttributePCIeRoot, f.GPU.PCIeRoot)
	a.numaNode(f)
}

func (a Attributes) numaNode(f Inputs) {
	switch {
	case f.Lists && len(f.GPU.NearNUMANodes) > 0:
		near := make([]int64, len(f.GPU.NearNUMANodes))
		for i, node := range f.GPU.NearNUMANodes {
			near[i] = int64(node)
		}
		a[deviceattribute.StandardDeviceAttributeNUMANode] = resourceapi.DeviceAttribute{IntValues: near}
	case f.GPU.NUMANode != nil:
		a.number(deviceattribute.StandardDeviceAttributeNUMANode, *f.GPU.NUMANode)
	}
}

// Nearby adds the parts of the machine near a GPU, which only the metadata of containers
// has.
func (a Attributes) Nearby(g gpu.GPU) {
	a.name(v1alpha1.MetadataCPUs, g.CPUs)
	nics, rdma := g.NearNICs()
	a.names(v1alpha1.MetadataNICs, nics)
	a.names(v1alpha1.MetadataRDMADevices, rdma)
}

// values returns the number of values that the attributes have, each element of a list
// counted.
func (a Attributes) values() int {
	n := len(a)
	for _, attribute := range a {
		n += max(0, len(attribute.IntValues)-1) + max(0, len(attribute.StringValues)-1)
	}
	return n
}

// shares adds the mechanism that limits shares of the device.
func (a Attributes) shares(f Inputs) {
	a.name(v1alpha1.AttributeSharing, f.Sharing)
	a.name(v1alpha1.AttributeEnforcement, string(f.Memory.Weaker(f.Compute)))
	a.name(v1alpha1.AttributeMemoryEnforcement, string(f.Memory))
	a.name(v1alpha1.AttributeComputeEnforcement, string(f.Compute))
}

func onOff(on bool) string {
	if on {
		return v1alpha1.MIGModeEnabled
	}
	return v1alpha1.MIGModeDisabled
}

// text adds a description, and shortens one that is too long for the API.
func (a Attributes) text(name resourceapi.QualifiedName, value string) {
	value = strings.ToValidUTF8(value, "")
	if len(value) > resourceapi.DeviceAttributeMaxValueLength {
		cut := resourceapi.DeviceAttributeMaxValueLength
		for !utf8.RuneStart(value[cut]) {
			cut--
		}
		value = strings.TrimSpace(value[:cut])
	}
	a.name(name, value)
}

// name adds a string that selectors compare as a whole, so it is never shortened.
func (a Attributes) name(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength && utf8.ValidString(value) {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (a Attributes) names(name resourceapi.QualifiedName, values []string) {
	if len(values) > 0 {
		a[name] = resourceapi.DeviceAttribute{StringValues: values}
	}
}

func (a Attributes) number(name resourceapi.QualifiedName, value int) {
	n := int64(value)
	a[name] = resourceapi.DeviceAttribute{IntValue: &n}
}

func (a Attributes) flag(name resourceapi.QualifiedName, value *bool) {
	if value != nil {
		v := *value
		a[name] = resourceapi.DeviceAttribute{BoolValue: &v}
	}
}

func (a Attributes) release(name resourceapi.QualifiedName, value gpu.Version) {
	if !value.IsZero() {
		a.version(name, fmt.Sprintf("%d.%d", value.Major, value.Minor))
	}
}

func (a Attributes) version(name resourceapi.QualifiedName, value string) {
	if v := semver(value); v != "" {
		a[name] = resourceapi.DeviceAttribute{VersionValue: &v}
	}
}

// semver converts a dotted version of up to three numbers to semver.org's format.
// That format has three numbers without leading zeros: 535.54.03 becomes 535.54.3,
// and 12.8 becomes 12.8.0. It returns "" for any other text.
func semver(s string) string {
	parts := strings.Split(s, ".")
	if len(parts) > 3 {
		return ""
	}
	numbers := [3]uint64{}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return ""
		}
		numbers[i] = n
	}
	return fmt.Sprintf("%d.%d.%d", numbers[0], numbers[1], numbers[2])
}
