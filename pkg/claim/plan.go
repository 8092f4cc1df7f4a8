package claim

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// plan gives the record with which a claim's life begins: its devices and the
// steps to take, none of them begun. It is nil if none of the claim's devices
// are ours. It is the last line of defence against an allocation that cannot be
// what the user wants; whether another claim holds a device is looked up later,
// under the GPU's lock.
func (m *Manager) plan(ctx context.Context, claim *resourceapi.ResourceClaim) (*record, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("%w: the claim is not allocated", gpu.ErrInvalid)
	}
	r := &record{
		Version: recordVersion,
		BootID:  m.BootID,
		Claim:   Ref{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		Journal: []entry{{Step: stepWriteCDI}},
	}
	allocation := claim.Status.Allocation.Devices
	seen := make(map[string]bool)
	for _, result := range allocation.Results {
		if result.Driver != m.DriverName {
			continue
		}
		g, err := m.wholeGPU(ctx, result)
		if err == nil && seen[result.Device] {
			err = fmt.Errorf("%w: allocated twice in this claim, and there is only one of it", gpu.ErrInvalid)
		}
		if err == nil {
			err = m.configure(allocation.Config, result)
		}
		if err != nil {
			return nil, fmt.Errorf("request %s, device %s: %w", result.Request, result.Device, err)
		}
		seen[result.Device] = true
		r.Devices = append(r.Devices, allocated{
			Request: result.Request, Pool: result.Pool, Device: result.Device, ShareID: result.ShareID, UUID: g.UUID,
		})
	}
	if len(r.Devices) == 0 {
		return nil, nil
	}
	return r, nil
}

// wholeGPU returns the GPU of an allocation result, if it is one and the claim
// can have all of it.
func (m *Manager) wholeGPU(ctx context.Context, result resourceapi.DeviceRequestAllocationResult) (gpu.GPU, error) {
	if result.Pool != m.PoolName {
		return gpu.GPU{}, fmt.Errorf("%w: it is of pool %s, and this node has pool %s", gpu.ErrInvalid, result.Pool, m.PoolName)
	}
	if result.AdminAccess != nil && *result.AdminAccess {
		return gpu.GPU{}, fmt.Errorf("admin access: %w: this node offers no device for monitoring; remove adminAccess from the request", gpu.ErrNotSupported)
	}
	name, err := gpu.ParseDeviceName(result.Device)
	if err != nil {
		return gpu.GPU{}, err
	}
	if name.Kind != gpu.KindGPU {
		return gpu.GPU{}, fmt.Errorf("%w: this node publishes whole GPUs and no device of type %s", gpu.ErrNotFound, name.Kind)
	}
	g, err := m.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return gpu.GPU{}, err
	}
	if g.MIG.Enabled {
		return gpu.GPU{}, fmt.Errorf("%w as a whole GPU: somebody has switched it to MIG mode; switch it back or cordon the node", gpu.ErrNotSupported)
	}
	if !catalog.Whole(g, result.ConsumedCapacity) {
		memory, all := result.ConsumedCapacity[catalog.CapacityMemory], catalog.Memory(g)
		return gpu.GPU{}, fmt.Errorf("a share of a GPU: %w: the claim takes %s of %s memory, and this node prepares whole GPUs only; remove capacity from the request",
			gpu.ErrNotSupported, memory.String(), all.String())
	}
	return g, nil
}

// configure decodes every configuration that applies to a result, those of the
// class before those of the claim, and lets the last one win.
func (m *Manager) configure(configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult) error {
	name, err := gpu.ParseDeviceName(result.Device)
	if err != nil {
		return err
	}
	applying := resourceclaim.ConfigForResult(configs, result)
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, c := range applying {
			if c.Source != source || c.Opaque.Driver != m.DriverName {
				continue
			}
			config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			if err == nil && !config.Fits(name.Kind) {
				err = fmt.Errorf("%w: a %T cannot configure a device of type %s", gpu.ErrInvalid, config, name.Kind)
			}
			if err != nil {
				return fmt.Errorf("configuration (%s): %w", source, err)
			}
		}
	}
	return nil
}
