// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Allocation lists the devices that were allocated to a claim, with their configurations. It
// is read from the claim's object once.
type Allocation struct {
	Claim Ref
	// Pods that the claim is reserved for.
	Pods []types.UID
	// MultiUser is set if a configuration asks for MPS daemons that serve several users.
	MultiUser bool
	requests  []deviceRequest
}

// deviceRequest is one allocation result of this driver plus its configuration.
type deviceRequest struct {
	claim  types.UID
	result resourceapi.DeviceRequestAllocationResult
	// device in the allocation, and its name.
	device Device
	name   kind.Name
	// consumed are the capacities that the claim takes, see [consumed].
	consumed map[resourceapi.QualifiedName]resource.Quantity
	// config is nil if there is none. configErr is why it cannot be decoded.
	config    v1alpha1.Config
	configErr error
	origin    origin

	// The other fields are set by [Inputs.resolve].

	gpu use.GPU // none if the device is all GPUs
	// all of the device's memory.
	all resource.Quantity
	// share is the share of the device that the claim takes. It is the whole device
	// for slots, and for a device without separate memory.
	share kind.Share
}

// wrap returns an error about the device request.
func (d deviceRequest) wrap(err error) error {
	return fmt.Errorf("request %s, device %s: %w", d.result.Request, d.result.Device, err)
}

// AllocationOf returns the allocation of a claim, without the devices of other drivers. The error
// wraps [gpu.ErrInvalid].
func (s Settings) AllocationOf(claim *resourceapi.ResourceClaim) (Allocation, error) {
	a := Allocation{Claim: Ref{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, Pods: PodsOf(claim)}
	if claim.Status.Allocation == nil {
		return a, fmt.Errorf("%w: the claim is not allocated", gpu.ErrInvalid)
	}
	allocated := claim.Status.Allocation.Devices
	for _, result := range allocated.Results {
		if result.Driver != s.DriverName {
			continue
		}
		d := deviceRequest{claim: claim.UID, result: result}
		var err error
		if d.name, err = kind.Parse(result.Device); err != nil {
			return a, d.wrap(err)
		}
		class, capacity, known := requested(claim, result.Request)
		d.device = Device{Request: result.Request, Class: class, Pool: result.Pool, Name: d.name, ShareID: result.ShareID}
		if d.consumed = result.ConsumedCapacity; known {
			d.consumed = consumed(capacity, result.ConsumedCapacity)
		}
		a.requests = append(a.requests, d)
	}
	a.configure(s.configurations(allocated.Config))
	return a, nil
}

// ReservedPods returns the pods that a claim is reserved for.
func ReservedPods(claim *resourceapi.ResourceClaim) []resourceapi.ResourceClaimConsumerReference {
	return slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(consumer resourceapi.ResourceClaimConsumerReference) bool {
		return consumer.APIGroup != "" || consumer.Resource != "pods"
	})
}

// PodsOf returns the UIDs of the pods that a claim is reserved for.
func PodsOf(claim *resourceapi.ResourceClaim) (pods []types.UID) {
	for _, pod := range ReservedPods(claim) {
		pods = append(pods, pod.UID)
	}
	return pods
}

// GPUs returns the addresses of the GPUs of the devices, which may repeat.
func (a Allocation) GPUs() []gpu.PCIAddress {
	var gpus []gpu.PCIAddress
	for _, d := range a.requests {
		if d.name.OnGPU() {
			gpus = append(gpus, d.name.Address)
		}
	}
	return gpus
}

// Plan returns the allocated devices, and not how the claim uses them.
func (a Allocation) Plan() Plan {
	p := Plan{Claim: a.Claim}
	for _, d := range a.requests {
		p.Devices = append(p.Devices, d.device)
	}
	return p
}

// consumed returns the consumed capacities of an allocation, without the memory if its
// request names none. The claim then has the whole device, even if the device has more
// or less memory after a reboot.
func consumed(request *resourceapi.CapacityRequirements, allocated map[resourceapi.QualifiedName]resource.Quantity) map[resourceapi.QualifiedName]resource.Quantity {
	if request != nil {
		if _, limited := request.Requests[v1alpha1.CapacityMemory]; limited {
			return allocated
		}
	}
	consumed := maps.Clone(allocated)
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
