package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// allocation gives a record of the claim's devices of ours, as they were
// allocated and without a plan; nil if there are none.
func (m *Manager) allocation(claim *resourceapi.ResourceClaim) (*record, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("%w: the claim is not allocated", gpu.ErrInvalid)
	}
	r := &record{
		Version: recordVersion,
		BootID:  m.BootID,
		Claim:   Ref{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == m.DriverName {
			r.Devices = append(r.Devices, allocated{Request: result.Request, Pool: result.Pool, Device: result.Device, ShareID: result.ShareID})
		}
	}
	if len(r.Devices) == 0 {
		return nil, nil
	}
	r.addPods(PodsOf(claim))
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

// wish is one allocation result of ours and all that is known of it.
type wish struct {
	result resourceapi.DeviceRequestAllocationResult
	name   kind.Name
	gpu    gpu.GPU // none where the device is all of them
	// all of the device's memory.
	all resource.Quantity
	// share is what the claim takes of it; of a time slice, and of what has no
	// memory of its own, all.
	share catalog.Share
	// config is nil where there is none.
	config v1alpha1.Config
	origin origin
}

// plan completes a record of allocated devices with how each of them is used and
// the steps to take, none of them begun. It is the last line of defence against
// an allocation that cannot be what the user wants; whether another claim stands
// in the way is looked up later.
func (m *Manager) plan(ctx context.Context, claim *resourceapi.ResourceClaim, r *record) error {
	allocation := claim.Status.Allocation.Devices
	var wishes []wish
	for _, result := range allocation.Results {
		if result.Driver != m.DriverName {
			continue
		}
		w, err := m.wish(ctx, claim, result)
		if err == nil {
			w.config, w.origin, err = m.configuration(allocation.Config, w)
		}
		if err == nil {
			err = w.fits()
		}
		if err != nil {
			return w.fail(result, err)
		}
		wishes = append(wishes, w)
	}
	var names []kind.Name
	for i, w := range wishes {
		a := &r.Devices[i]
		a.UUID = w.gpu.UUID
		err := m.use(ctx, a, w, wishes)
		if err == nil {
			err = m.beside(ctx, *a, w.name, r.Devices[:i], names)
		}
		if err == nil {
			err = w.mayCompute(*a)
		}
		if err != nil {
			return w.fail(w.result, err)
		}
		names = append(names, w.name)
	}
	r.Journal = m.journal(r.Devices, names)
	return nil
}

func (wish) fail(result resourceapi.DeviceRequestAllocationResult, err error) error {
	return fmt.Errorf("request %s, device %s: %w", result.Request, result.Device, err)
}

// journal gives the steps for the devices: what others build on comes first, and
// the CDI spec, which lets containers start, last.
func (m *Manager) journal(devices []allocated, names []kind.Name) []entry {
	var modes, partitions, turns, daemons []entry
	add := func(to *[]entry, step, device string) {
		if e := (entry{Step: step, Device: device}); !slices.ContainsFunc(*to, func(other entry) bool { return other.Device == device }) {
			*to = append(*to, e)
		}
	}
	for i, d := range devices {
		onGPU := names[i].Address.DeviceName()
		if names[i].Kind == kind.MIG {
			if !m.Partitioning.Static {
				add(&modes, stepEnsureMIGMode, onGPU)
			}
			add(&partitions, stepCreatePartition, d.Device)
		}
		if d.TimeSlice != "" {
			add(&turns, stepSetTimeSlice, onGPU)
		}
		if d.MPS != nil {
			add(&daemons, stepStartMPS, d.MPS.Daemon)
		}
	}
	return slices.Concat(modes, partitions, turns, daemons, []entry{{Step: stepWriteCDI}})
}

// beside reports an error if a claim is given a device together with one that
// it cannot be beside.
func (m *Manager) beside(ctx context.Context, a allocated, name kind.Name, others []allocated, names []kind.Name) error {
	for i, other := range others {
		switch {
		case name == names[i] && (!a.partOf(name) || !other.partOf(name) || sameShare(a.ShareID, other.ShareID)):
			return fmt.Errorf("%w: allocated twice in this claim, and there is only one of it", gpu.ErrInvalid)
		case m.exclude(ctx, a, name, other, names[i]):
			return fmt.Errorf("%w: allocated together with %s, which it cannot be beside", gpu.ErrInvalid, other.Device)
		case a.TimeSlice != "" && other.TimeSlice != "" && a.TimeSlice != other.TimeSlice && name.Address == names[i].Address:
			return fmt.Errorf("%w: the claim's configurations want the time slices %s and %s of one GPU", gpu.ErrInvalid, other.TimeSlice, a.TimeSlice)
		}
	}
	return nil
}

// wish looks up the device of an allocation result of the claim, and what that
// takes of it.
func (m *Manager) wish(ctx context.Context, claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) (wish, error) {
	w := wish{result: result}
	if result.Pool != m.PoolName {
		return w, fmt.Errorf("%w: it is of pool %s, and this node has pool %s", gpu.ErrInvalid, result.Pool, m.PoolName)
	}
	var err error
	if w.name, err = kind.Parse(result.Device); err != nil {
		return w, err
	}
	admin := result.AdminAccess != nil && *result.AdminAccess
	switch {
	case w.name.Kind == kind.Monitor && !admin:
		return w, fmt.Errorf("%w: it is all GPUs of the node, for monitoring agents only: the request needs adminAccess: true, in a namespace that an administrator has labelled resource.kubernetes.io/admin-access=true", gpu.ErrInvalid)
	case w.name.Kind == kind.Monitor:
		w.share = catalog.Share{Whole: true}
		return w, nil
	case admin:
		return w, fmt.Errorf("admin access: %w: claims may be using the device, and admin access would put another beside them; remove adminAccess from the request, or, to monitor GPUs, ask for the class monitor.nvidia.com", gpu.ErrNotSupported)
	case w.name.Kind == kind.GPU, w.name.Kind == kind.TimeSlice, w.name.Kind == kind.MIG && m.Partitioning != nil:
	default:
		return w, fmt.Errorf("%w: this node publishes no device of type %s", gpu.ErrNotFound, w.name.Kind)
	}
	if w.gpu, err = m.Inventory.GPU(ctx, w.name.Address); err != nil {
		return w, err
	}
	if w.gpu.Fault != "" {
		return w, fmt.Errorf("%w: %s", gpu.ErrUnhealthy, w.gpu.Fault)
	}
	if pod := use.ExternalHolder(w.gpu, w.name); pod != "" {
		return w, refused{fmt.Errorf("%w: a device plugin of this node has given it, or what it is part of, to another pod; it is free when that pod has ended", gpu.ErrInUse), []any{"pod", pod}}
	}
	if w.all, err = m.memoryOf(w.gpu, w.name, result.ShareID != nil); err != nil {
		return w, err
	}
	w.share = catalog.Share{Whole: true}
	if w.name.Kind == kind.TimeSlice {
		_, err = catalog.Slots(result.ConsumedCapacity)
	} else {
		w.share, err = m.Shares.Share(w.all, asked(claim, result))
	}
	if err == nil && result.ShareID == nil && (!w.share.Whole || w.name.Kind == kind.TimeSlice) {
		err = fmt.Errorf("%w: a part of a device without a share ID: the cluster lacks the feature gate DRAConsumableCapacity", gpu.ErrInvalid)
	}
	return w, err
}

// asked is what an allocation consumes of the capacities that its request asks
// for. Memory that it does not ask for is all that the device had when it was
// allocated; the device may have more or less by the time of another boot, and is
// the claim's as a whole all the same.
func asked(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) map[resourceapi.QualifiedName]resource.Quantity {
	capacity, known := requestedCapacity(claim, result.Request)
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

// requestedCapacity is what the request of that name, "gpu" or "gpu/big" for a
// subrequest, asks for; nil for nothing.
func requestedCapacity(claim *resourceapi.ResourceClaim, name string) (capacity *resourceapi.CapacityRequirements, known bool) {
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil && request.Name == name {
			return request.Exactly.Capacity, true
		}
		for _, alternative := range request.FirstAvailable {
			if resourceclaim.CreateSubRequestRef(request.Name, alternative.Name) == name {
				return alternative.Capacity, true
			}
		}
	}
	return nil, false
}
