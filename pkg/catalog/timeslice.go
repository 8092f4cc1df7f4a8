package catalog

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// DefaultTimeSlices is the number of slots of a GPU that is offered in turns,
// where nothing else is said.
const DefaultTimeSlices = 4

// Slots reads how many of a time-sliced GPU's slots an allocation consumes. The
// error for none at all wraps [gpu.ErrInvalid].
func Slots(consumed map[resourceapi.QualifiedName]resource.Quantity) (int, error) {
	slots := consumed[v1alpha1.CapacitySlots]
	n, exact := slots.AsInt64()
	if !exact || n < 1 {
		return 0, fmt.Errorf("%w: %s slots of a time-sliced GPU; want a whole number from 1", gpu.ErrInvalid, slots.String())
	}
	return int(n), nil
}

// timeSliced reports whether the GPU is offered in turns, or held so.
func (c Catalog) timeSliced(g gpu.GPU, held Held) bool {
	_, taken := held[turnsName(g)]
	return (c.offersTurns() || taken) && !c.Exclusive
}

func (c Catalog) offersTurns() bool { return c.Offer.TimeSlice && !c.NoCounters }

func turnsName(g gpu.GPU) string {
	return kind.Name{Kind: kind.TimeSlice, Address: g.Address}.String()
}

// turns is the device of which claims take slots. Who takes turns asks for any
// GPU, for one that runs the code, or for one close to something else; the rest
// of what is known of the GPU is told by its own device.
func (c Catalog) turns(g gpu.GPU) resourceapi.Device {
	a := attributes{}
	a.name(v1alpha1.AttributeType, v1alpha1.DeviceTypeTimeSlice)
	a.name(v1alpha1.AttributeUUID, g.UUID)
	a.text(v1alpha1.AttributeProductName, g.ProductName)
	a.release(v1alpha1.AttributeCUDAComputeCapability, g.ComputeCapability)
	if g.NUMANode != nil {
		a.number(deviceattribute.StandardDeviceAttributeNUMANode, *g.NUMANode)
	}
	a.name(deviceattribute.StandardDeviceAttributePCIeRoot, g.PCIeRoot)

	slots := int64(c.TimeSlices)
	if slots == 0 {
		slots = DefaultTimeSlices
	}
	shared := true
	return resourceapi.Device{
		Name:                     turnsName(g),
		Attributes:               a,
		AllowMultipleAllocations: &shared,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			v1alpha1.CapacitySlots: {Value: number(slots), RequestPolicy: policy(number(1), number(1), number(1))},
		},
	}
}
