// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// limit decides the limit of each container that uses a share, if the driver can hold it.
// It takes the place of the limit that MPS has for each client. The shares of all containers together have no more
// memory than the claim.
func (in Inputs) limit(device *Device, d deviceRequest) error {
	if device.Share == nil || device.Share.Memory == 0 || !use.HasMemoryLimits(d.gpu.GPU, d.name) {
		return nil
	}
	containers := 1
	if config, configured := d.config.(*v1alpha1.ShareConfig); configured {
		containers = config.Containers
	}
	if device.MPS != nil {
		device.MPS.MemoryLimit = 0
	}
	each := device.Share.Memory / uint64(containers) / catalog.MemoryStep * catalog.MemoryStep
	if each == 0 {
		return fmt.Errorf("%w: %s of memory for %d containers leaves none to compute with; ask for more, or declare fewer containers in the ShareConfig",
			gpu.ErrInvalid, inBytes(device.Share.Memory), containers)
	}
	device.Limit = &share.Limit{Memory: each, Containers: containers}
	return nil
}

// required returns the least enforcement that the configuration of a share accepts; "" for
// any.
func (d deviceRequest) required() v1alpha1.Enforcement {
	if config, configured := d.config.(*v1alpha1.ShareConfig); configured {
		return config.Require
	}
	return ""
}

// checkRequired returns an error if the device is limited less strictly than the
// configuration of the share requires.
func (d deviceRequest) checkRequired(device Device) error {
	if device.Require == "" {
		return nil
	}
	memory, compute := device.Enforcement()
	if !memory.AtLeast(device.Require) {
		return fmt.Errorf("require: %w: the memory of the share is held at the level %s on this node, and the ShareConfig requires %s: %s; see %s",
			gpu.ErrNotSupported, memory, device.Require, d.whyNoLimits(), gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	if least, held := device.holdsCompute(); !held {
		return fmt.Errorf("require: %w: the compute of the share is held at the level %s on this node, and the ShareConfig requires %s; see %s",
			gpu.ErrNotSupported, compute, least, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	return nil
}

// holdsCompute reports whether the compute of an MPS share is limited as strictly as
// required. It also returns the required level.
func (d Device) holdsCompute() (least v1alpha1.Enforcement, held bool) {
	if d.Require == "" || d.MPS == nil {
		return "", true
	}
	least = d.Require.Weaker(v1alpha1.EnforcementDaemon)
	_, compute := d.Enforcement()
	return least, compute.AtLeast(least)
}

// whyNoLimits returns why the driver does not limit the memory of containers.
func (d deviceRequest) whyNoLimits() string {
	if d.name.IsPartition() {
		return "the driver limits no containers on MIG devices"
	}
	return d.gpu.NoMemoryLimits
}
