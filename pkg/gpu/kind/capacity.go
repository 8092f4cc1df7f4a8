// SPDX-License-Identifier: Apache-2.0

package kind

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// WholeCompute is the compute of a GPU, in percent of its multiprocessors.
const WholeCompute = 100

// Capacities are the capacities of one device by their name.
type Capacities map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// Amounts are what a device offers to claims. Each kind publishes the amounts that claims
// can take of it.
type Amounts struct {
	// Memory of the device; zero if it is not known. Every kind publishes a capacity
	// "memory": the scheduler fails a claim if a selector reads a capacity that one of
	// the devices does not have.
	Memory resource.Quantity
	// Shared reports whether claims can take shares of the memory: Smallest or more,
	// in multiples of Step.
	Shared         bool
	Smallest, Step resource.Quantity
	// Compute in percent of the multiprocessors. More than [WholeCompute] is promised
	// to shares, of which one gets at most [WholeCompute].
	Compute int64
	// Units is the number of units of a divided GPU.
	Units int64
	// MPS is set if MPS daemons run on the node.
	MPS bool
}

// Capacities returns the capacities of a device of the kind; nil if it has none.
func (k Kind) Capacities(a Amounts) Capacities {
	if capacities := k.rules().capacities; capacities != nil {
		return capacities(a)
	}
	return nil
}

// CapacityNames returns the names of all capacities.
func CapacityNames() []resourceapi.QualifiedName {
	names := []resourceapi.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCompute}
	for _, k := range Divided() {
		names = append(names, k.Units().Capacity)
	}
	return names
}

// policy returns the policy of a capacity that claims consume. A range has no maximum
// if the capacity itself is the maximum of a request, and no step if that is zero.
func policy(standard, minimum, step resource.Quantity) *resourceapi.CapacityRequestPolicy {
	valid := resourceapi.CapacityRequestPolicyRange{Min: &minimum}
	if !step.IsZero() {
		valid.Step = &step
	}
	return &resourceapi.CapacityRequestPolicy{Default: &standard, ValidRange: &valid}
}

func number(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
