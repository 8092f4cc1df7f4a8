// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

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
	addShareAttributes(attributes, dataOf(d).Share)
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
