// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// deviceRequest is one allocation result of this driver plus its configuration.
type deviceRequest struct {
	claim  types.UID
	result resourceapi.DeviceRequestAllocationResult
	name   kind.Name
	gpu    gpu.GPU // none if the device is all GPUs
	// all of the device's memory.
	all resource.Quantity
	// share is the share of the device that the claim takes. It is the whole device
	// for slots, and for a device that has no memory of its own.
	share kind.Share
	// config is nil if there is none.
	config v1alpha1.Config
	origin origin
}

// request returns the device request of an allocation result of the claim, without its
// configuration.
func (in Inputs) request(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, name kind.Name) (deviceRequest, error) {
	d := deviceRequest{claim: claim.UID, result: result, name: name}
	if result.Pool != in.PoolName {
		return d, fmt.Errorf("%w: it is of pool %s, and this node has pool %s", gpu.ErrInvalid, result.Pool, in.PoolName)
	}
	var err error
	admin := result.AdminAccess != nil && *result.AdminAccess
	switch {
	case d.name.Kind.Scope() == kind.ScopeNode && !admin:
		return d, fmt.Errorf("%w: it is all GPUs of the node, for monitoring agents only: the request needs adminAccess: true, in a namespace that an administrator has labelled resource.kubernetes.io/admin-access=true", gpu.ErrInvalid)
	case d.name.Kind.Scope() == kind.ScopeNode:
		d.share = kind.Share{Whole: true}
		return d, nil
	case admin:
		return d, fmt.Errorf("admin access: %w: claims may be using the device, and admin access would add another claim to the same device; remove adminAccess from the request, or, to monitor GPUs, ask for the class monitor.nvidia.com", gpu.ErrNotSupported)
	case d.name.IsWholeGPU(), d.name.IsPartition() && in.Partitioning:
	default:
		return d, fmt.Errorf("%w: this node publishes no device of type %s", gpu.ErrNotFound, d.name.Kind)
	}
	if d.gpu, err = in.gpuAt(d.name.Address); err != nil {
		return d, err
	}
	causes := []use.Cause{use.Unhealthy, use.External}
	if !in.Partitioning {
		// On other nodes, claims may have left the MIG mode on. It is switched off
		// before the steps of the plan.
		causes = append(causes, use.MIGMode)
	}
	if err := in.checkUse(d, use.Alone, causes...); err != nil {
		return d, err
	}
	if d.all, err = in.memoryOf(d.gpu, d.name, result.ShareID != nil); err != nil {
		return d, err
	}
	d.share, err = in.Shares.Share(d.name.Kind, d.all, consumed(claim, result))
	if err == nil && result.ShareID == nil && (!d.share.Whole || d.share.Slots > 0) {
		err = fmt.Errorf("%w: a part of a device without a share ID: the cluster lacks the feature gate DRAConsumableCapacity", gpu.ErrInvalid)
	}
	return d, err
}

// isUndivided reports whether the claim has the GPU neither as a partition nor in units.
func (d deviceRequest) isUndivided() bool { return d.name.IsWholeGPU() && !d.name.Kind.HasUnits() }

// consumed returns the consumed capacities of an allocation, without the memory if its
// request names none. The claim then has the whole device, even if the device has more
// or less memory after a reboot.
func consumed(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) map[resourceapi.QualifiedName]resource.Quantity {
	_, capacity, known := requested(claim, result.Request)
	if !known {
		return result.ConsumedCapacity
	}
	if capacity != nil {
		if _, limited := capacity.Requests[v1alpha1.CapacityMemory]; limited {
			return result.ConsumedCapacity
		}
	}
	consumed := maps.Clone(result.ConsumedCapacity)
	delete(consumed, v1alpha1.CapacityMemory)
	return consumed
}

// requested returns the DeviceClass of a request and the capacity that it asks for, nil if
// none. The name of a subrequest is like "gpu/big".
func requested(claim *resourceapi.ResourceClaim, name string) (class string, capacity *resourceapi.CapacityRequirements, known bool) {
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil && request.Name == name {
			return request.Exactly.DeviceClassName, request.Exactly.Capacity, true
		}
		for _, alternative := range request.FirstAvailable {
			if resourceclaim.CreateSubRequestRef(request.Name, alternative.Name) == name {
				return alternative.DeviceClassName, alternative.Capacity, true
			}
		}
	}
	return "", nil, false
}

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
	if there := PartitionsAt(d.gpu.MIG, d.name); len(there) == 1 {
		return there[0].UUID
	}
	return ""
}

// companions returns the requests of a claim that share the configuration of this one,
// itself among them, in their order.
func (d deviceRequest) companions(all []deviceRequest) []deviceRequest {
	var same []deviceRequest
	for _, other := range all {
		if d.isConfiguredWith(other) {
			same = append(same, other)
		}
	}
	return same
}
