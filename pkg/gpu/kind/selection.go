// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Level is a named set of published attributes. Each level has all attributes of the level before.
type Level string

// The levels, the smallest first.
const (
	// LevelLean distinguishes the GPUs of a cluster and the places of GPUs in a node. It
	// is for fleets of thousands of nodes.
	LevelLean Level = "lean"
	// LevelStandard adds what users and the manifests of NVIDIA's driver select by. It is
	// the default: a selector that reads an attribute which one of the examined nodes does
	// not publish ends the scheduling of the pod on all nodes.
	LevelStandard Level = "standard"
	// LevelAll publishes every attribute.
	LevelAll Level = "all"
)

func levels() []Level { return []Level{LevelLean, LevelStandard, LevelAll} }

// added returns the attributes that a level adds to the one before. The metadata of a
// container has the attributes of all levels.
func (l Level) added() []resourceapi.QualifiedName {
	switch l {
	case LevelLean:
		return []resourceapi.QualifiedName{
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
	case LevelStandard:
		return []resourceapi.QualifiedName{
			v1alpha1.AttributeBrand,
			v1alpha1.AttributeDriverVersion,
			v1alpha1.AttributeCUDADriverVersion,
			v1alpha1.AttributeAddressingMode,
			v1alpha1.AttributeMultiprocessors,
			v1alpha1.AttributeMIGCapable,
			v1alpha1.AttributeMIGMode,
			v1alpha1.AttributeNVLinkPeers,
			v1alpha1.AttributeEnforcement,
			deviceattribute.StandardDeviceAttributePCIBusID,
		}
	case LevelAll:
		return []resourceapi.QualifiedName{
			v1alpha1.AttributeNVLinkLinks,
			v1alpha1.AttributeNVLinkVersion,
			v1alpha1.AttributeNVLinkSwitch,
			v1alpha1.AttributePCIeSwitch,
			v1alpha1.AttributeECCEnabled,
			v1alpha1.AttributePersistenceMode,
			v1alpha1.AttributeComputeEnforcement,
		}
	}
	return nil
}

// includes reports whether the level has the attribute. The zero level is [LevelStandard].
func (l Level) includes(name resourceapi.QualifiedName) bool {
	own, known := LevelOf(name)
	return known && slices.Index(levels(), own) <= slices.Index(levels(), cmp.Or(l, LevelStandard))
}

// LevelOf returns the smallest level with the attribute; false if there is no such
// attribute.
func LevelOf(name resourceapi.QualifiedName) (Level, bool) {
	for _, l := range levels() {
		if slices.Contains(l.added(), name) {
			return l, true
		}
	}
	return "", false
}

// AttributeNames returns the names of all attributes, in the order of the levels. Names of
// Kubernetes have its domain.
func AttributeNames() []string {
	var names []string
	for _, l := range levels() {
		for _, name := range l.added() {
			names = append(names, string(name))
		}
	}
	return names
}

// Selection is the set of published attributes: a level, and further ones by their names.
// The zero value is [LevelStandard].
type Selection struct {
	Level Level
	Named []resourceapi.QualifiedName
}

// ParseSelection reads a list of levels and names, separated by commas. Examples are
// "lean", "eccEnabled,nvlinkLinks" and "lean,driverVersion". Without a level it returns
// [LevelStandard]. It also returns a selection of the known words if there are unknown
// ones. The error names these and wraps [gpu.ErrInvalid].
func ParseSelection(s string) (Selection, error) {
	var selected Selection
	var unknown []string
	for word := range strings.SplitSeq(s, ",") {
		name, level := resourceapi.QualifiedName(word), Level(word)
		_, known := LevelOf(name)
		switch {
		case slices.Contains(levels(), level):
			if slices.Index(levels(), level) > slices.Index(levels(), selected.Level) {
				selected.Level = level
			}
		case known:
			selected.Named = append(selected.Named, name)
		default:
			unknown = append(unknown, fmt.Sprintf("%q", word))
		}
	}
	if unknown != nil {
		return selected, fmt.Errorf("%s: %w: want lean, standard, all, or names of: %s", strings.Join(unknown, ", "), gpu.ErrInvalid, strings.Join(AttributeNames(), ", "))
	}
	return selected, nil
}

// Published returns the attributes that a device is published with. Lists are published
// because a flag of their own enables them.
func (s Selection) Published(a Attributes) Attributes {
	published := maps.Clone(a)
	maps.DeleteFunc(published, func(name resourceapi.QualifiedName, value resourceapi.DeviceAttribute) bool {
		return value.StringValues == nil && !s.Includes(name)
	})
	return published
}

// Includes reports whether the attribute is published, except for lists.
func (s Selection) Includes(name resourceapi.QualifiedName) bool {
	return s.Level.includes(name) || slices.Contains(s.Named, name)
}
