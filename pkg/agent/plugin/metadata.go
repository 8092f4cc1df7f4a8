// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
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

// writeMetadata replaces a metadata file or its CDI spec atomically. It does not sync
// the disk: after a crash of the machine no container uses the file, and the next
// prepare writes it again. Upstream's function syncs four times per request of a claim,
// which would double the time to prepare.
//
// Concurrent calls may write the same file, for two pods with one claim.
func writeMetadata(path string, data []byte, perm os.FileMode) (err error) {
	tmp, err := file.Open(path+strings.Replace(metadataTemporary, "*", strconv.FormatUint(rand.Uint64(), 36), 1), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Chmod(perm)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// metadataTemporary is the pattern of the suffix of temporary files. Container runtimes
// ignore such files: they read only .json and .yaml.
const metadataTemporary = ".*.tmp"
