// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Settings are the offer and the abilities of a node.
type Settings struct {
	// DriverName selects the allocation results and configurations of this driver.
	DriverName string
	// PoolName is the pool that this node publishes.
	PoolName string
	Shares   catalog.ShareOffer
	// ContextMemory is the memory in bytes that the CUDA context of an MPS client
	// takes in addition to the client's memory limit.
	ContextMemory uint64
	// Partitioning, MPS and TimeSlicing are set if the node supports them.
	Partitioning, MPS, TimeSlicing bool
	// ExclusiveCompute is set if GPUs are in EXCLUSIVE_PROCESS while they have MPS
	// shares.
	ExclusiveCompute bool
}

// Inputs are the inputs of a plan in addition to the claim.
type Inputs struct {
	Settings
	// GPUs of the claim's devices. A GPU that is missing is not found.
	GPUs map[gpu.PCIAddress]GPU
	// MultiUser is set if the MPS daemons of the node serve several users at a time.
	// It is needed if [Settings.AsksForMultiUser].
	MultiUser    bool
	MultiUserErr error
}

// GPU is a GPU as last seen, or why it cannot be used.
type GPU struct {
	GPU gpu.GPU
	Err error
}

func (in Inputs) gpuAt(address gpu.PCIAddress) (gpu.GPU, error) {
	known, ok := in.GPUs[address]
	if !ok {
		return gpu.GPU{}, fmt.Errorf("%s: %w", Describe(address), gpu.ErrNotFound)
	}
	return known.GPU, known.Err
}

// Allocated returns the devices of this driver that were allocated to a claim, and not how
// the claim uses them.
func (s Settings) Allocated(claim *resourceapi.ResourceClaim) (Plan, error) {
	p := Plan{Claim: Ref{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}}
	if claim.Status.Allocation == nil {
		return p, fmt.Errorf("%w: the claim is not allocated", gpu.ErrInvalid)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != s.DriverName {
			continue
		}
		name, err := kind.Parse(result.Device)
		if err != nil {
			return p, wrap(result, err)
		}
		class, _, _ := requested(claim, result.Request)
		p.Devices = append(p.Devices, Device{Request: result.Request, Class: class, Pool: result.Pool, Name: name, ShareID: result.ShareID})
	}
	return p, nil
}

// PodsOf returns the UIDs of the pods that a claim is reserved for.
func PodsOf(claim *resourceapi.ResourceClaim) []types.UID {
	var pods []types.UID
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, consumer.UID)
		}
	}
	return pods
}

// Make decides how an allocated claim uses its devices. Conflicts with other claims are found
// later, by [Against].
func Make(claim *resourceapi.ResourceClaim, in Inputs) (Plan, error) {
	p, err := in.Allocated(claim)
	if err != nil {
		return p, err
	}
	requests, err := in.requests(claim, p)
	if err != nil {
		return p, err
	}
	planned := Plan{Claim: p.Claim}
	for i, d := range requests {
		device, err := in.use(p.Devices[i], d, requests)
		if err == nil {
			err = in.checkCombination(device, planned.Devices)
		}
		if err == nil {
			err = in.checkUse(d, d.sharingOf(device), use.ComputeMode)
		}
		if err != nil {
			return p, wrap(d.result, err)
		}
		planned.Devices = append(planned.Devices, device)
	}
	return planned, nil
}

// requests returns the device requests of a plan's devices with their configurations.
func (in Inputs) requests(claim *resourceapi.ResourceClaim, p Plan) ([]deviceRequest, error) {
	var requests []deviceRequest
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != in.DriverName {
			continue
		}
		d, err := in.request(claim, result, p.Devices[len(requests)].Name)
		if err == nil {
			d.config, d.origin, err = in.configuration(claim.Status.Allocation.Devices.Config, d)
		}
		if err == nil {
			err = d.checkConfiguration()
		}
		if err != nil {
			return nil, wrap(result, err)
		}
		requests = append(requests, d)
	}
	return requests, nil
}

func wrap(result resourceapi.DeviceRequestAllocationResult, err error) error {
	return fmt.Errorf("request %s, device %s: %w", result.Request, result.Device, err)
}

// Refusal is an error that reaches a user, with details that are for administrators
// only: names of what belongs to other tenants. The details go to the log.
type Refusal struct {
	Err     error
	Details []any // keys and values
}

func (r Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error without the details.
func (r Refusal) Unwrap() error { return r.Err }

// Refuse returns a [Refusal].
func Refuse(err error, details ...any) error { return Refusal{Err: err, Details: details} }

// DetailsOf returns the refusal in an error's chain, if there is one.
func DetailsOf(err error) (r Refusal, ok bool) {
	ok = errors.As(err, &r)
	return r, ok
}
