// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// standard lists the attributes that are always published, because they distinguish
// the GPUs of a cluster or the places of GPUs in a node. Every other one costs the
// scheduler and the API server time and memory on each node.
var standard = []resourceapi.QualifiedName{
	v1alpha1.AttributeType,
	v1alpha1.AttributeUUID,
	v1alpha1.AttributeProductName,
	v1alpha1.AttributeArchitecture,
	v1alpha1.AttributeCUDAComputeCapability,
	v1alpha1.AttributeSharing,
	v1alpha1.AttributeMemoryEnforcement,
	v1alpha1.AttributeNVLinkDomain,
	v1alpha1.AttributeNVLinkCliques,
	v1alpha1.AttributeFabricClusterUUID,
	v1alpha1.AttributeFabricCliqueID,
	v1alpha1.AttributeProfile,
	v1alpha1.AttributeParentUUID,
	deviceattribute.StandardDeviceAttributePCIeRoot,
	deviceattribute.StandardDeviceAttributeNUMANode,
}

// further lists the attributes that are published on request. The metadata of a container
// has all of them.
var further = []resourceapi.QualifiedName{
	v1alpha1.AttributeBrand,
	v1alpha1.AttributeDriverVersion,
	v1alpha1.AttributeCUDADriverVersion,
	v1alpha1.AttributeMultiprocessors,
	v1alpha1.AttributeMIGCapable,
	v1alpha1.AttributeMIGMode,
	v1alpha1.AttributeNVLinkPeers,
	v1alpha1.AttributeNVLinkLinks,
	v1alpha1.AttributeNVLinkVersion,
	v1alpha1.AttributeNVLinkSwitch,
	v1alpha1.AttributeECCEnabled,
	v1alpha1.AttributePersistenceMode,
	v1alpha1.AttributeAddressingMode,
	v1alpha1.AttributeEnforcement,
	v1alpha1.AttributeComputeEnforcement,
	deviceattribute.StandardDeviceAttributePCIBusID,
}

// FurtherAttributes returns the names of the attributes that a [Selection] can add.
func FurtherAttributes() []string {
	names := make([]string, len(further))
	for i, name := range further {
		names[i] = string(name)
	}
	return names
}

// IsStandard reports whether the attribute is published without a [Selection].
func IsStandard(name resourceapi.QualifiedName) bool { return slices.Contains(standard, name) }

// Selection is a set of attributes to publish in addition to the standard ones. The zero
// value adds none.
type Selection struct {
	All   bool
	Named []resourceapi.QualifiedName
}

// ParseSelection reads "standard", "all", or a list of further attributes such as
// "brand,driverVersion". The error for a word that is not an attribute wraps
// [gpu.ErrInvalid] and lists the attributes.
func ParseSelection(s string) (Selection, error) {
	switch s {
	case "standard":
		return Selection{}, nil
	case "all":
		return Selection{All: true}, nil
	}
	var selected Selection
	for word := range strings.SplitSeq(s, ",") {
		name := resourceapi.QualifiedName(word)
		if !slices.Contains(further, name) {
			return Selection{}, fmt.Errorf("attribute %q: %w; write standard, all, or a list of: %s", word, gpu.ErrInvalid, strings.Join(FurtherAttributes(), ", "))
		}
		selected.Named = append(selected.Named, name)
	}
	return selected, nil
}

// Published returns the attributes that a device is published with. Lists are published
// because a flag of their own enables them.
func (s Selection) Published(a Attributes) Attributes {
	published := maps.Clone(a)
	maps.DeleteFunc(published, func(name resourceapi.QualifiedName, value resourceapi.DeviceAttribute) bool {
		return !s.All && !IsStandard(name) && value.StringValues == nil && !slices.Contains(s.Named, name)
	})
	return published
}
