// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// TimeSlice is a whole GPU that claims share by time slices. A claim takes slots.
const TimeSlice Kind = v1alpha1.DeviceTypeTimeSlice

func timeSlice() rules {
	const strategy = v1alpha1.StrategyTimeSlicing
	units := Units{
		Capacity: v1alpha1.CapacitySlots, Standard: 4,
		Flag: "timeslice-slots", Usage: "`NUMBER` of claims that can have a time slice of a GPU, if the node offers timeslice",
	}
	return rules{
		kind: TimeSlice, scope: ScopeGPU, takes: TakesSlots, offer: v1alpha1.OfferTimeSlice, suffix: "-ts", units: units,
		configuration: Configuration{Own: v1alpha1.KindGpuConfig, Strategy: strategy, Noun: "time slices", Remedy: " whose sharing.strategy is " + string(strategy)},
		class: Class{
			Comment:    "Time slices of a GPU. A claim without a memory request has no memory limit.",
			Capacities: "slots or memory for time slices",
		},
		attributes: slotAttributes,
		capacities: func(a Amounts) Capacities { return a.slotCapacities(units) },
		consume:    func(a Amounts, c Consumed) (Share, error) { return a.slots(c, units, "a time-sliced GPU") },
	}
}

// slotAttributes adds the attributes by which a claim for slots selects: the programs
// that run on the GPU, its place in the machine, and how strictly the memory that a
// claim names is limited. The device of the whole GPU has the others.
func slotAttributes(f Inputs, a Attributes) {
	a.name(v1alpha1.AttributeMemoryEnforcement, string(f.Memory))
	a.name(v1alpha1.AttributeUUID, f.GPU.UUID)
	a.product(f)
	a.locality(f)
}
