// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// metadataOf returns what a container finds of a device below
// /var/run/kubernetes.io/dra-device-attributes: the published attributes, and how
// the claim shares the device.
func metadataOf(d claim.Device) *kubeletplugin.DeviceMetadata {
	attributes := d.Attributes
	if attributes == nil {
		attributes = map[string]resourceapi.DeviceAttribute{}
	}
	if _, ok := attributes[v1alpha1.AttributeUUID]; !ok && d.UUID != "" {
		attributes[v1alpha1.AttributeUUID] = resourceapi.DeviceAttribute{StringValue: &d.UUID}
	}
	addShare(attributes, dataOf(d).Share)
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// writeMetadata replaces a metadata file or its CDI spec at once, without
// waiting for the disk: after a crash of the machine no container is left that
// has it, and preparing the claim again writes it again. Upstream's own syncs
// four times per request of a claim, which would double the time to prepare.
//
// Two pods with one claim that come at once have the same files written at the
// same time.
func writeMetadata(path string, data []byte, perm os.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+metadataTemporary)
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

// metadataTemporary ends the names, as [os.CreateTemp] has them, of files that
// are to become metadata. Container runtimes read .json and .yaml only.
const metadataTemporary = ".*.tmp"
