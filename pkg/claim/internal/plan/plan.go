// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Plan is how a claim uses its devices.
type Plan struct {
	// Record has the devices of the claim, in the order of the allocation, and no
	// steps.
	Record *journal.Record
	// Names of the devices.
	Names []kind.Name

	facts    Facts
	requests []deviceRequest // of the record's devices
}

// Node describes the offer and the abilities of a node. It does not change while the
// agent runs.
type Node struct {
	// DriverName selects the allocation results and configurations of this driver.
	DriverName string
	// PoolName is the pool that this node publishes.
	PoolName string
	// BootID names this boot of the machine.
	BootID string
	Shares catalog.ShareOffer
	// ContextMemory is the memory in bytes that the CUDA context of an MPS client
	// takes in addition to the client's memory limit.
	ContextMemory uint64
	// Partitioning, MPS and TimeSlicing are set if the node supports them.
	Partitioning, MPS, TimeSlicing bool
	// ExclusiveCompute is set if GPUs are in EXCLUSIVE_PROCESS while they have MPS
	// shares.
	ExclusiveCompute bool
}

// Facts are the inputs of a plan in addition to the claim.
type Facts struct {
	Node
	// GPUs of the claim's devices. A GPU that is missing is not found.
	GPUs map[gpu.PCIAddress]GPU
	// MultiUser is set if the MPS daemons of the node serve several users at a time.
	// It is needed if [AsksForMultiUser].
	MultiUser    bool
	MultiUserErr error
}

// GPU is a GPU as last seen, or why it cannot be used.
type GPU struct {
	GPU gpu.GPU
	Err error
}

func (f Facts) gpuAt(address gpu.PCIAddress) (gpu.GPU, error) {
	known, ok := f.GPUs[address]
	if !ok {
		return gpu.GPU{}, fmt.Errorf("%s: %w", Describe(address), gpu.ErrNotFound)
	}
	return known.GPU, known.Err
}

// Allocated returns a record of the devices of this driver that were allocated to a
// claim, without a plan; nil if there are none.
func (n Node) Allocated(claim *resourceapi.ResourceClaim) (*journal.Record, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("%w: the claim is not allocated", gpu.ErrInvalid)
	}
	r := &journal.Record{
		Version: journal.Version,
		BootID:  n.BootID,
		Claim:   journal.Ref{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == n.DriverName {
			class, _, _ := requested(claim, result.Request)
			r.Devices = append(r.Devices, journal.Device{Request: result.Request, Class: class, Pool: result.Pool, Name: result.Device, ShareID: result.ShareID})
		}
	}
	if len(r.Devices) == 0 {
		return nil, nil
	}
	r.AddPods(PodsOf(claim))
	return r, nil
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

// Make decides how an allocated claim uses its devices. r is its record from
// [Node.Allocated], which Make completes. Conflicts with other claims are found later,
// by [Plan.CheckFree].
func Make(claim *resourceapi.ResourceClaim, r *journal.Record, facts Facts) (*Plan, error) {
	allocation := claim.Status.Allocation.Devices
	var requests []deviceRequest
	for _, result := range allocation.Results {
		if result.Driver != facts.DriverName {
			continue
		}
		d, err := facts.request(claim, result)
		if err == nil {
			d.config, d.origin, err = facts.configuration(allocation.Config, d)
		}
		if err == nil {
			err = d.checkConfiguration()
		}
		if err != nil {
			return nil, wrap(result, err)
		}
		requests = append(requests, d)
	}
	p := &Plan{Record: r, facts: facts, requests: requests}
	for i, d := range requests {
		device := &r.Devices[i]
		device.UUID = d.gpu.UUID
		err := facts.use(device, d, requests)
		if err == nil {
			err = p.checkCombination(*device, d.name, r.Devices[:i])
		}
		if err == nil {
			err = facts.checkUse(d, d.sharingOf(*device), use.ComputeMode)
		}
		if err != nil {
			return nil, wrap(d.result, err)
		}
		p.Names = append(p.Names, d.name)
	}
	return p, nil
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
