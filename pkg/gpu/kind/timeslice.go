// SPDX-License-Identifier: Apache-2.0

package kind

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// TimeSlice is a whole GPU that claims share by time slices. A claim takes slots.
const TimeSlice Kind = v1alpha1.DeviceTypeTimeSlice

// Slots returns the name of the time slices of a GPU.
func Slots(address gpu.PCIAddress) Name { return Name{Kind: TimeSlice, Address: address} }

const timeSliceSuffix = "-ts"

type timeSlice struct{}

func (timeSlice) kind() Kind           { return TimeSlice }
func (timeSlice) format(n Name) string { return n.Address.DeviceName() + timeSliceSuffix }
func (timeSlice) parse(s string) (Name, bool, error) {
	return parseSuffix(TimeSlice, s, timeSliceSuffix)
}
func (timeSlice) scope() Scope    { return ScopeGPU }
func (timeSlice) takes() Taken    { return TakesSlots }
func (timeSlice) adminOnly() bool { return false }
func (timeSlice) offer() string   { return v1alpha1.OfferTimeSlice }

func (timeSlice) configuration() Configuration {
	const strategy = v1alpha1.StrategyTimeSlicing
	return Configuration{Own: v1alpha1.KindGpuConfig, Strategy: strategy, Noun: "time slices", Remedy: " whose sharing.strategy is " + string(strategy)}
}

// attributes adds the attributes by which a claim for slots selects: the programs
// that run on the GPU, its place in the machine, and how strictly the memory that a
// claim names is limited. The device of the whole GPU has the others.
func (timeSlice) attributes(f Inputs, a Attributes) {
	a.name(v1alpha1.AttributeMemoryEnforcement, string(f.Memory))
	a.name(v1alpha1.AttributeUUID, f.GPU.UUID)
	a.product(f)
	a.locality(f)
}

// capacities returns the slots, and the memory that claims can name in addition. A claim
// that names none takes none of it. The API admits no default below the minimum, so the
// minimum is 0, and less than the smallest share is refused when a claim is prepared.
func (timeSlice) capacities(a Amounts) Capacities {
	memory := resourceapi.DeviceCapacity{Value: a.Memory}
	if !a.Memory.IsZero() {
		memory.RequestPolicy = policy(number(0), number(0), a.Step)
	}
	return Capacities{
		v1alpha1.CapacitySlots:  {Value: number(a.Slots), RequestPolicy: policy(number(1), number(1), number(1))},
		v1alpha1.CapacityMemory: memory,
	}
}
