package catalog

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

// attributes of one device by their name. A value that is not known, or that
// the API would refuse, is left out.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// identify gives the attributes of a GPU that do not depend on its neighbours.
func identify(node gpu.Node, g gpu.GPU) attributes {
	a := attributes{}
	a.name(v1alpha1.AttributeType, v1alpha1.DeviceTypeGPU)
	a.name(v1alpha1.AttributeUUID, g.UUID)
	a.text(v1alpha1.AttributeProductName, g.ProductName)
	a.text(v1alpha1.AttributeBrand, g.Brand)
	a.text(v1alpha1.AttributeArchitecture, g.Architecture)
	a.release(v1alpha1.AttributeCUDAComputeCapability, g.ComputeCapability)
	a.version(v1alpha1.AttributeDriverVersion, node.DriverVersion)
	a.release(v1alpha1.AttributeCUDADriverVersion, node.CUDADriverVersion)

	a.name(deviceattribute.StandardDeviceAttributePCIBusID, g.Address.String())
	a.name(deviceattribute.StandardDeviceAttributePCIeRoot, g.PCIeRoot)
	if g.NUMANode != nil {
		a.number(deviceattribute.StandardDeviceAttributeNUMANode, *g.NUMANode)
	}

	a.flag(v1alpha1.AttributeMIGCapable, &g.MIG.Capable)
	if g.MIG.Capable {
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
	return a
}

func onOff(on bool) string {
	if on {
		return v1alpha1.MIGModeEnabled
	}
	return v1alpha1.MIGModeDisabled
}

// text adds a description, shortened where it is too long for the API.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
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

// name adds a string that is compared as a whole, and therefore never a
// shortened one.
func (a attributes) name(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength && utf8.ValidString(value) {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (a attributes) names(name resourceapi.QualifiedName, values []string) {
	a[name] = resourceapi.DeviceAttribute{StringValues: values}
}

func (a attributes) number(name resourceapi.QualifiedName, value int) {
	n := int64(value)
	a[name] = resourceapi.DeviceAttribute{IntValue: &n}
}

func (a attributes) flag(name resourceapi.QualifiedName, value *bool) {
	if value != nil {
		v := *value
		a[name] = resourceapi.DeviceAttribute{BoolValue: &v}
	}
}

func (a attributes) release(name resourceapi.QualifiedName, value gpu.Version) {
	if !value.IsZero() {
		a.version(name, fmt.Sprintf("%d.%d", value.Major, value.Minor))
	}
}

func (a attributes) version(name resourceapi.QualifiedName, value string) {
	if v := semver(value); v != "" {
		a[name] = resourceapi.DeviceAttribute{VersionValue: &v}
	}
}

// semver writes a dotted version of up to three numbers as semver.org's three,
// which have no leading zeros: 535.54.03 becomes 535.54.3, and 12.8 becomes
// 12.8.0. Anything else gives "".
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
