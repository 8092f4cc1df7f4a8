package catalog

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The capacities of a GPU.
const (
	// CapacityMemory is the GPU's memory in bytes, of which claims take whole
	// steps of [MemoryStep]. A claim that does not ask for memory takes all.
	CapacityMemory resourceapi.QualifiedName = "memory"
	// CapacityCompute is the GPU's multiprocessors in percent. A claim that
	// does not ask for compute reserves none.
	CapacityCompute resourceapi.QualifiedName = "compute"
)

// MemoryStep is the unit, in bytes, in which memory is published and taken.
const MemoryStep = 1 << 20

// wholeCompute is 100 percent.
const wholeCompute = 100

// Memory is the capacity "memory" of a GPU: all of its memory, rounded down to
// whole steps, so that the whole is a valid request.
func Memory(g gpu.GPU) resource.Quantity {
	return *resource.NewQuantity(int64(g.MemoryBytes/MemoryStep*MemoryStep), resource.BinarySI)
}

// Whole reports whether an allocation that consumes these capacities holds all
// of the GPU. Nothing consumed means a device that is allocated exclusively.
// Only memory decides: who has all of it leaves none for others.
func Whole(g gpu.GPU, consumed map[resourceapi.QualifiedName]resource.Quantity) bool {
	memory, limited := consumed[CapacityMemory]
	return !limited || memory.Cmp(Memory(g)) >= 0
}

// PartitionMemory is the capacity "memory" of a MIG device of the profile: all
// of its memory, rounded down to whole steps.
func PartitionMemory(p gpu.ProfileInfo) resource.Quantity {
	return *resource.NewQuantity(int64(p.MemoryBytes/MemoryStep*MemoryStep), resource.BinarySI)
}

// shareable reports whether claims can take shares of the GPU. One whose
// memory is unknown or below two steps has nothing that could be divided: with
// no capacity to consume, any number of claims would fit.
func shareable(g gpu.GPU) bool {
	return g.MemoryBytes >= 2*MemoryStep
}

// capacities gives the capacities of a GPU, with the policies that make them
// consumable if claims can take shares of it. The capacity itself is the
// maximum of a request, so the ranges state none.
func capacities(g gpu.GPU, shared bool) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	if g.MemoryBytes < MemoryStep {
		return nil
	}
	memory := resourceapi.DeviceCapacity{Value: Memory(g)}
	compute := resourceapi.DeviceCapacity{Value: *resource.NewQuantity(wholeCompute, resource.DecimalSI)}
	if shared {
		memory.RequestPolicy = policy(Memory(g), *resource.NewQuantity(MemoryStep, resource.BinarySI), *resource.NewQuantity(MemoryStep, resource.BinarySI))
		none := *resource.NewQuantity(0, resource.DecimalSI)
		compute.RequestPolicy = policy(none, none, *resource.NewQuantity(1, resource.DecimalSI))
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		CapacityMemory:  memory,
		CapacityCompute: compute,
	}
}

func policy(standard, minimum, step resource.Quantity) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{
		Default:    &standard,
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &minimum, Step: &step},
	}
}
