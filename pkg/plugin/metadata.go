package plugin

import (
	"errors"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// metadataOf is what a container finds of a device below
// /var/run/kubernetes.io/dra-device-attributes: the attributes as published, and
// what the claim has of it.
func metadataOf(d claim.Device) *kubeletplugin.DeviceMetadata {
	attributes := d.Attributes
	if attributes == nil {
		attributes = map[string]resourceapi.DeviceAttribute{}
	}
	if _, ok := attributes["uuid"]; !ok && d.UUID != "" {
		attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: &d.UUID}
	}
	dataOf(d).attributes(attributes)
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// writeMetadata replaces a metadata file or its CDI spec at once, without
// waiting for the disk: after a crash of the machine no container is left that
// has it, and preparing the claim again writes it again. Upstream's own syncs
// four times per request of a claim, which would double the time to prepare.
func writeMetadata(path string, data []byte, perm os.FileMode) error {
	tmp := path + ".tmp" // container runtimes read .json and .yaml only
	err := os.WriteFile(tmp, data, perm)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(tmp)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
