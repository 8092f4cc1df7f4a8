// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// resolve returns the device request with the GPU and the part of it that the claim takes.
func (in Inputs) resolve(d deviceRequest) (deviceRequest, error) {
	d, err := in.resolveShare(d)
	if err == nil {
		err = d.configErr
	}
	if err == nil {
		err = d.checkConfiguration()
	}
	return d, err
}

// resolveShare is resolve without checks of the configuration.
func (in Inputs) resolveShare(d deviceRequest) (deviceRequest, error) {
	result := d.result
	if result.Pool != in.PoolName {
		return d, fmt.Errorf("%w: it is of pool %s, and this node has pool %s", gpu.ErrInvalid, result.Pool, in.PoolName)
	}
	var err error
	admin := result.AdminAccess != nil && *result.AdminAccess
	switch {
	case d.name.Kind.Scope() == kind.ScopeNode && !admin:
		return d, fmt.Errorf("%w: it is all GPUs of the node, for monitoring agents only: the request needs adminAccess: true; see %s", gpu.ErrInvalid, gpu.Page("docs/user/events.md#event-texts"))
	case d.name.Kind.Scope() == kind.ScopeNode:
		d.share = kind.Share{Whole: true}
		return d, nil
	case admin:
		return d, fmt.Errorf("admin access: %w: claims may be using the device, and admin access would add another claim to the same device; see %s", gpu.ErrNotSupported, gpu.Page("docs/user/events.md#event-texts"))
	case d.name.IsWholeGPU(), d.name.IsPartition() && in.Partitioning:
	default:
		return d, fmt.Errorf("%w: this node publishes no device of type %s", gpu.ErrNotFound, d.name.Kind)
	}
	if d.gpu, err = in.gpuAt(d.name.Address); err != nil {
		return d, err
	}
	aspects := []use.Aspect{use.Unhealthy, use.External}
	if !in.Partitioning {
		// On other nodes, claims may have left the MIG mode on. It is switched off
		// before the steps of the plan.
		aspects = append(aspects, use.MIGMode)
	}
	if err := in.checkUse(d, use.Alone, aspects...); err != nil {
		return d, err
	}
	if d.all, err = in.memoryOf(d.gpu.GPU, d.name, result.ShareID != nil); err != nil {
		return d, err
	}
	d.share, err = in.Shares.Share(d.name.Kind, d.all, d.consumed)
	if err == nil && result.ShareID == nil && (!d.share.Whole || d.share.Slots > 0) {
		err = fmt.Errorf("%w: a part of a device without a share ID: the cluster lacks the feature gate DRAConsumableCapacity", gpu.ErrInvalid)
	}
	return d, err
}

// isUndivided reports whether the claim has the GPU neither as a partition nor in units.
func (d deviceRequest) isUndivided() bool { return d.name.IsWholeGPU() && !d.name.Kind.HasUnits() }

// isShare reports whether the request is for a share, which may be one of everything.
func (d deviceRequest) isShare() bool {
	_, configured := d.config.(*v1alpha1.ShareConfig)
	return configured || !d.share.Whole
}

// uuid returns the UUID of the device; "" for a MIG device that is not made yet.
func (d deviceRequest) uuid() string {
	if !d.name.IsPartition() {
		return d.gpu.UUID
	}
	if present := PartitionsAt(d.gpu.MIG, d.name); len(present) == 1 {
		return present[0].UUID
	}
	return ""
}

// companions returns the requests of a claim that share this request's configuration,
// in their order. This request is among them.
func (d deviceRequest) companions(all []deviceRequest) []deviceRequest {
	var same []deviceRequest
	for _, other := range all {
		if d.isConfiguredWith(other) {
			same = append(same, other)
		}
	}
	return same
}
