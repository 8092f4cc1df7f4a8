package claim

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	}
	allocation := claim.Status.Allocation.Devices
	var seen []gpu.DeviceName
	for _, result := range allocation.Results {
		if result.Driver != m.DriverName {
			continue
		}
		name, g, err := m.device(ctx, result)
		if err == nil {
			err = m.beside(ctx, name, seen)
		}
		if err == nil {
			err = m.configure(allocation.Config, result)
		}
		if err != nil {
			return nil, fmt.Errorf("request %s, device %s: %w", result.Request, result.Device, err)
		}
		seen = append(seen, name)
		r.Devices = append(r.Devices, allocated{
			Request: result.Request, Pool: result.Pool, Device: result.Device, ShareID: result.ShareID, UUID: g.UUID,
		})
	}
	if len(r.Devices) == 0 {
		return nil, nil
	}
	r.Journal = m.journal(seen)
	return r, nil
}

// journal gives the steps for the devices. MIG modes come first and the CDI
// spec, which lets containers start, last.
func (m *Manager) journal(devices []gpu.DeviceName) []entry {
	var modes, partitions []entry
	for _, d := range devices {
		if d.Kind != gpu.KindMIG {
			continue
		}
		mode := entry{Step: stepEnsureMIGMode, Device: d.Address.DeviceName()}
		if !m.Partitioning.Static && !slices.ContainsFunc(modes, func(e entry) bool { return e.Device == mode.Device }) {
			modes = append(modes, mode)
		}
		partitions = append(partitions, entry{Step: stepCreatePartition, Device: d.String()})
	}
	return append(append(modes, partitions...), entry{Step: stepWriteCDI})
}

// beside reports an error if a claim is given a device together with one that
// it cannot be beside.
func (m *Manager) beside(ctx context.Context, name gpu.DeviceName, others []gpu.DeviceName) error {
	for _, other := range others {
		switch {
		case other == name:
			return fmt.Errorf("%w: allocated twice in this claim, and there is only one of it", gpu.ErrInvalid)
		case m.conflict(ctx, name, other):
			return fmt.Errorf("%w: allocated together with %s, of which it is a part", gpu.ErrInvalid, other)
		}
	}
	return nil
}

// device returns the device of an allocation result and its GPU, if it is one
// and the claim can have all of it.
func (m *Manager) device(ctx context.Context, result resourceapi.DeviceRequestAllocationResult) (gpu.DeviceName, gpu.GPU, error) {
	if result.Pool != m.PoolName {
		return gpu.DeviceName{}, gpu.GPU{}, fmt.Errorf("%w: it is of pool %s, and this node has pool %s", gpu.ErrInvalid, result.Pool, m.PoolName)
	}
	if result.AdminAccess != nil && *result.AdminAccess {
		return gpu.DeviceName{}, gpu.GPU{}, fmt.Errorf("admin access: %w: this node offers no device for monitoring; remove adminAccess from the request", gpu.ErrNotSupported)
	}
	name, err := gpu.ParseDeviceName(result.Device)
	if err != nil {
		return gpu.DeviceName{}, gpu.GPU{}, err
	}
	switch {
	case name.Kind == gpu.KindGPU:
		g, err := m.wholeGPU(ctx, name, result)
		return name, g, err
	case name.Kind == gpu.KindMIG && m.Partitioning != nil:
		g, err := m.wholePartition(ctx, name, result)
		return name, g, err
	default:
		return name, gpu.GPU{}, fmt.Errorf("%w: this node publishes no device of type %s", gpu.ErrNotFound, name.Kind)
	}
}

func (m *Manager) wholeGPU(ctx context.Context, name gpu.DeviceName, result resourceapi.DeviceRequestAllocationResult) (gpu.GPU, error) {
	g, err := m.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return gpu.GPU{}, err
	}
	if g.MIG.Enabled {
		if err := m.mayBeWhole(ctx, name.Address); err != nil {
			return gpu.GPU{}, err
		}
	}
	if !catalog.Whole(g, result.ConsumedCapacity) {
		return gpu.GPU{}, notWhole("GPU", result, catalog.Memory(g))
	}
	return g, nil
}

// mayBeWhole reports an error for a GPU in a MIG mode that is not the claims'
// to switch off.
func (m *Manager) mayBeWhole(ctx context.Context, address gpu.PCIAddress) error {
	if m.Partitioning != nil {
		ours, err := m.modeOurs(ctx, address)
		if err != nil || ours {
			return err
		}
		// The inventory may be older than what switched it off.
		mig, err := m.Partitioning.MIG.MIG(ctx, address)
		if err != nil || !mig.Enabled {
			return err
		}
	}
	return fmt.Errorf("%w as a whole GPU: somebody has switched it to MIG mode; switch it back with nvidia-smi -i %s -mig 0 or cordon the node", gpu.ErrNotSupported, address)
}

func (m *Manager) wholePartition(ctx context.Context, name gpu.DeviceName, result resourceapi.DeviceRequestAllocationResult) (gpu.GPU, error) {
	g, err := m.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return gpu.GPU{}, err
	}
	info, _, known := g.MIG.Find(name)
	if !known {
		return gpu.GPU{}, fmt.Errorf("%w: %s has no MIG profile %s at memory slice %d", gpu.ErrNotFound, describe(name.Address), name.Profile, name.Start)
	}
	all := catalog.PartitionMemory(info)
	if memory, limited := result.ConsumedCapacity[catalog.CapacityMemory]; limited && memory.Cmp(all) < 0 {
		return gpu.GPU{}, notWhole("MIG device", result, all)
	}
	return g, nil
}

func notWhole(what string, result resourceapi.DeviceRequestAllocationResult, all resource.Quantity) error {
	memory := result.ConsumedCapacity[catalog.CapacityMemory]
	return fmt.Errorf("a share of a %s: %w: the claim takes %s of %s memory, and this node prepares whole %ss only; remove capacity from the request",
		what, gpu.ErrNotSupported, memory.String(), all.String(), what)
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
			if err == nil && (config.Kind() != v1alpha1.KindGpuConfig || name.Kind != gpu.KindGPU) {
				err = fmt.Errorf("%w: a %T cannot configure a device of type %s", gpu.ErrInvalid, config, name.Kind)
			}
			if err != nil {
				return fmt.Errorf("configuration (%s): %w", source, err)
			}
		}
	}
	return nil
}
