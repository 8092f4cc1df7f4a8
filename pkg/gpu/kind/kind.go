// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Kind is the type of a published device: the value of its attribute "type" and
// of the label for it in metrics.
type Kind string

// table lists the rules of every kind. Names are parsed and kinds are documented in
// its order.
var table = []rules{wholeGPU(), migDevice(), timeSlice(), seat(), monitor()}

// rules are the properties of one kind. What a kind does not have is left out.
type rules struct {
	kind  Kind
	scope Scope
	takes Taken
	// offer is the word of the node's offer that publishes the kind.
	offer         string
	configuration Configuration
	units         Units
	class         Class
	// suffix follows the name of the GPU in the names of devices of [ScopeGPU].
	suffix string
	// format returns the published name of a device of another scope.
	format func(Name) string
	// parse reads a published name. It returns false if the name is of another
	// kind, and an error if it is of this kind and not valid.
	parse func(string) (Name, bool, error)
	// attributes adds the attributes of a device of this kind but its type.
	attributes func(Inputs, Attributes)
	capacities func(Amounts) Capacities
	// consume returns what an allocation with the capacities takes of the device.
	consume func(Amounts, Consumed) (Share, error)
	// check returns an error if the GPU cannot have a device of the kind.
	check func(gpu.GPU, Amounts) error
}

// Scope is the part of a node that a device represents. It determines which other
// devices the device excludes; see [Excludes].
type Scope string

const (
	// ScopeNode is all GPUs of the node. The device excludes nothing.
	ScopeNode Scope = "node"
	// ScopeGPU is one whole GPU, used in one way at a time.
	ScopeGPU Scope = "gpu"
	// ScopePartition is one placement of a MIG profile on one GPU.
	ScopePartition Scope = "partition"
)

// Taken is the capacity that claims consume of a device.
type Taken string

const (
	// TakesNothing means that a device has no capacity.
	TakesNothing Taken = "nothing"
	// TakesMemory means that a claim takes all of a device, or a share of its
	// memory.
	TakesMemory Taken = "memory"
	// TakesSlots means that a claim takes units without a size, and never the whole
	// device.
	TakesSlots Taken = "slots"
	// TakesSeats means that a claim takes units that are equal shares, which MPS limits.
	TakesSeats Taken = "seats"
)

// Configuration says which opaque configurations the devices of a kind accept.
type Configuration struct {
	// Own is the API kind for a whole device of this kind; empty if the devices
	// accept none. It is also the kind that NVIDIA's driver applies to a device
	// when the configuration names no request.
	Own string
	// Strategy is the only strategy that Own may have; empty if it may have any.
	Strategy v1alpha1.Strategy
	// Noun names such a device in an error: "a MIG device".
	Noun string
	// Remedy follows "write a <Own>" in an error about another configuration. It is
	// the whole remedy if Own is empty.
	Remedy string
}

// Class describes a kind for the chart: its DeviceClass and the admission policies.
type Class struct {
	// Comment is the text above the DeviceClass, in lines. It is empty for a kind whose
	// class the chart does not generate.
	Comment string
	// Capacities says in the policies' messages what requests name: "seats for seats".
	Capacities string
}

// All returns every kind.
func All() []Kind {
	kinds := make([]Kind, len(table))
	for i, r := range table {
		kinds[i] = r.kind
	}
	return kinds
}

// rules returns the kind's entry in the table. The entry is empty for a kind that is not
// in the table: its devices represent nothing and accept no configuration.
func (k Kind) rules() *rules {
	for i := range table {
		if table[i].kind == k {
			return &table[i]
		}
	}
	return &rules{takes: TakesNothing}
}

// Scope returns the part of a node that a device of the kind represents.
func (k Kind) Scope() Scope { return k.rules().scope }

// Takes returns the capacity that claims consume of a device of the kind.
func (k Kind) Takes() Taken { return k.rules().takes }

// Offer returns the word of the node's offer that publishes the kind. It is empty
// for a kind that every node publishes.
func (k Kind) Offer() string { return k.rules().offer }

// Check returns an error if the GPU cannot have a device of the kind with the amounts.
func (k Kind) Check(g gpu.GPU, a Amounts) error {
	if check := k.rules().check; check != nil {
		return check(g, a)
	}
	return nil
}

// MPSShares reports whether MPS can limit shares of a device of the kind.
func (k Kind) MPSShares() bool { return k.Takes() == TakesMemory || k.Takes() == TakesSeats }

// Configuration returns which opaque configurations the devices of the kind
// accept.
func (k Kind) Configuration() Configuration { return k.rules().configuration }

// Accepts reports whether an opaque configuration of the API kind can configure a
// device or its shares.
func (k Kind) Accepts(configuration string, share bool) bool {
	own := k.Configuration().Own
	shares := k.MPSShares() && configuration == v1alpha1.KindShareConfig
	return shares || !share && own != "" && configuration == own
}

// Class returns what the chart says of the kind.
func (k Kind) Class() Class { return k.rules().class }

// Strategies returns the strategies that users of a device of the kind can have.
func (k Kind) Strategies() []v1alpha1.Strategy {
	switch c := k.Configuration(); {
	case c.Strategy != "":
		return []v1alpha1.Strategy{c.Strategy}
	case c.Own != "":
		return []v1alpha1.Strategy{v1alpha1.StrategyMPS, v1alpha1.StrategyPlain, v1alpha1.StrategyTimeSlicing}
	}
	return nil
}

// NeedsMPS reports whether devices of the kind are of no use without MPS daemons.
func (k Kind) NeedsMPS() bool { return k.Configuration().Strategy == v1alpha1.StrategyMPS }
