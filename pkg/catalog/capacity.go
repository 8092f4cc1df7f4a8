package catalog

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The capacities of devices.
const (
	// CapacityMemory is the memory of a GPU or MIG device in bytes, of which
	// claims take whole steps of [MemoryStep]. A claim that does not ask for
	// memory takes all.
	CapacityMemory resourceapi.QualifiedName = "memory"
	// CapacityCompute is the GPU's multiprocessors in percent. A claim that
	// does not ask for compute reserves none.
	CapacityCompute resourceapi.QualifiedName = "compute"
	// CapacitySlots are the turns of a GPU that is offered in time slices. A
	// claim that does not ask for slots takes one.
	CapacitySlots resourceapi.QualifiedName = "slots"
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

// PartitionMemory is the capacity "memory" of a MIG device of the profile: all
// of its memory, rounded down to whole steps.
func PartitionMemory(p gpu.ProfileInfo) resource.Quantity {
	return *resource.NewQuantity(int64(p.MemoryBytes/MemoryStep*MemoryStep), resource.BinarySI)
}
