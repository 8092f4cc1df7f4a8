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

// limit returns the limit of each of the containers that use the share, nil if the driver
// cannot hold one. All containers together have no more memory than the share.
func (d deviceRequest) limit(containers int) (*share.Limit, error) {
	amount := d.amount()
	if amount == nil || amount.Memory == 0 || !use.HasMemoryLimits(d.gpu.GPU, d.name) {
		return nil, nil
	}
	each := amount.Memory / uint64(containers) / catalog.MemoryStep * catalog.MemoryStep
	if each == 0 {
		return nil, fmt.Errorf("%w: %s of memory for %d containers leaves none to compute with; ask for more, or declare fewer containers in the ShareConfig",
			gpu.ErrInvalid, inBytes(amount.Memory), containers)
	}
	return &share.Limit{Memory: each, Containers: containers}, nil
}

// checkRequired returns an error if the terms limit the share less strictly than its
// configuration requires.
func (d deviceRequest) checkRequired(t share.Terms) error {
	if t.Require == "" {
		return nil
	}
	memory, compute := t.Enforcement()
	if !memory.AtLeast(t.Require) {
		return fmt.Errorf("require: %w: the memory of the share is held at the level %s on this node, and the ShareConfig requires %s: %s; see %s",
			gpu.ErrNotSupported, memory, t.Require, d.whyNoLimits(), gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	if least, held := holdsCompute(t); !held {
		return fmt.Errorf("require: %w: the compute of the share is held at the level %s on this node, and the ShareConfig requires %s; see %s",
			gpu.ErrNotSupported, compute, least, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	return nil
}

// holdsCompute reports whether the compute of an MPS share is limited as strictly as
// required. It also returns the required level.
func holdsCompute(t share.Terms) (least v1alpha1.Enforcement, held bool) {
	if t.Require == "" || t.MPS == nil {
		return "", true
	}
	least = t.Require.Weaker(v1alpha1.EnforcementDaemon)
	_, compute := t.Enforcement()
	return least, compute.AtLeast(least)
}

// whyNoLimits returns why the driver does not limit the memory of containers.
func (d deviceRequest) whyNoLimits() string {
	if d.name.IsPartition() {
		return "the driver limits no containers on MIG devices"
	}
	return d.gpu.NoMemoryLimits
}
