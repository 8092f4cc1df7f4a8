// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// metadataOf returns the metadata of a device for the files below
// /var/run/kubernetes.io/dra-device-attributes in containers: the published attributes,
// and the attributes of the claim's share.
func metadataOf(d claim.Device) *kubeletplugin.DeviceMetadata {
	attributes := d.Attributes
	if attributes == nil {
		attributes = map[string]resourceapi.DeviceAttribute{}
	}
	if _, ok := attributes[v1alpha1.AttributeUUID]; !ok && d.UUID != "" {
		attributes[v1alpha1.AttributeUUID] = resourceapi.DeviceAttribute{StringValue: &d.UUID}
	}
	addShareAttributes(attributes, d.Terms.Data(d.Name.Kind))
	trimAttributes(attributes)
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// trimAttributes removes the attributes that programs in a container need least. It stops when as
// many are left as a device can have. Upstream's decoder refuses a file with more.
func trimAttributes(attributes map[string]resourceapi.DeviceAttribute) {
	for _, name := range []string{
		v1alpha1.AttributeMIGCapable, v1alpha1.AttributePersistenceMode, v1alpha1.AttributeBrand, v1alpha1.AttributeMIGMode,
		v1alpha1.AttributeNVLinkCliques, v1alpha1.AttributeAddressingMode, v1alpha1.AttributeECCEnabled,
	} {
		if len(attributes) <= resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			return
		}
		delete(attributes, name)
	}
}

// addShareAttributes adds the attributes of this claim's share to the published attributes of a
// device. It replaces the published sharing and enforcement, which describe how the
// device could be shared.
func addShareAttributes(a map[string]resourceapi.DeviceAttribute, s *v1alpha1.ShareData) {
	if s == nil {
		return
	}
	text := func(name, value string) {
		if value != "" {
			a[name] = resourceapi.DeviceAttribute{StringValue: &value}
		}
	}
	number := func(name string, value int) {
		if value != 0 {
			a[name] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(value))}
		}
	}
	quantity := func(name string, value *resource.Quantity) {
		if value != nil {
			text(name, value.String())
		}
	}
	switch s.Strategy {
	case v1alpha1.StrategyMPS:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByMPS)
	case v1alpha1.StrategyTimeSlicing:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByTimeSlice)
	case v1alpha1.StrategyPlain:
		fallthrough
	default:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByNone)
	}
	text(v1alpha1.AttributeEnforcement, string(s.Enforcement))
	text(v1alpha1.AttributeMemoryEnforcement, string(s.MemoryEnforcement))
	text(v1alpha1.AttributeComputeEnforcement, string(s.ComputeEnforcement))
	number(v1alpha1.MetadataShareContainers, s.Containers)
	quantity(v1alpha1.MetadataContainerMemoryLimit, s.ContainerMemoryLimit)
	quantity(v1alpha1.MetadataShareMemory, s.Memory)
	number(v1alpha1.MetadataShareCompute, s.Compute)
	number(v1alpha1.MetadataShareProcesses, s.Processes)
	number(v1alpha1.MetadataProcessThreadPercentage, s.ThreadPercentage)
	quantity(v1alpha1.MetadataProcessMemoryLimit, s.MemoryLimit)
	text(v1alpha1.MetadataTimeSlice, string(s.TimeSlice))
}
