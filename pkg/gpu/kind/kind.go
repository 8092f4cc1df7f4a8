// SPDX-License-Identifier: Apache-2.0

package kind

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// Kind is the type of a published device: the value of its attribute "type" and
// of the label for it in metrics.
type Kind string

// table lists the rules of every kind, in the order in which names are parsed and
// kinds are documented.
var table = []rules{wholeGPU{}, migDevice{}, timeSlice{}, seat{}, monitor{}}

// rules are the properties of one kind.
type rules interface {
	kind() Kind
	// format returns the published name of a device of this kind.
	format(Name) string
	// parse reads a published name. It returns false if the name is of another
	// kind, and an error if it is of this kind and not valid.
	parse(string) (Name, bool, error)
	scope() Scope
	takes() Taken
	adminOnly() bool
	offer() string
	configuration() Configuration
	// attributes adds the attributes of a device of this kind but its type.
	attributes(Inputs, Attributes)
	capacities(Amounts) Capacities
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
	// TakesSlots means that a claim takes slots, and never the whole device.
	TakesSlots Taken = "slots"
	// TakesSeats means that a claim takes seats, each an equal share of the memory.
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
	// Remedy follows "write a <Own>" in an error about another configuration, or
	// is the whole remedy if Own is empty.
	Remedy string
}

// All returns every kind.
func All() []Kind {
	kinds := make([]Kind, len(table))
	for i, r := range table {
		kinds[i] = r.kind()
	}
	return kinds
}

// rules returns the kind's entry in the table, or [unknown] for the zero Kind and
// any other kind that is not in the table.
func (k Kind) rules() rules {
	for _, r := range table {
		if r.kind() == k {
			return r
		}
	}
	return unknown{}
}

// Scope returns the part of a node that a device of the kind represents.
func (k Kind) Scope() Scope { return k.rules().scope() }

// Takes returns the capacity that claims consume of a device of the kind.
func (k Kind) Takes() Taken { return k.rules().takes() }

// AdminOnly reports whether only claims with admin access can use devices of the
// kind.
func (k Kind) AdminOnly() bool { return k.rules().adminOnly() }

// Offer returns the word of the node's offer that publishes the kind; empty for a
// kind that every node publishes.
func (k Kind) Offer() string { return k.rules().offer() }

// MPSShares reports whether MPS can limit shares of a device of the kind.
func (k Kind) MPSShares() bool { return k.Takes() == TakesMemory || k.Takes() == TakesSeats }

// Label returns the value that stands for the kind in the labels of metrics.
func (k Kind) Label() string { return string(k) }

// Configuration returns which opaque configurations the devices of the kind
// accept.
func (k Kind) Configuration() Configuration { return k.rules().configuration() }

// Accepts reports whether an opaque configuration of the API kind can configure a
// device, or a share of one.
func (k Kind) Accepts(configuration string, share bool) bool {
	own := k.Configuration().Own
	shares := k.MPSShares() && configuration == v1alpha1.KindShareConfig
	return shares || !share && own != "" && configuration == own
}

// unknown are the rules of a kind that is not in the table: its devices represent
// nothing and accept no configuration.
type unknown struct{}

func (unknown) kind() Kind                       { return "" }
func (unknown) format(Name) string               { return "" }
func (unknown) parse(string) (Name, bool, error) { return Name{}, false, nil }
func (unknown) scope() Scope                     { return "" }
func (unknown) takes() Taken                     { return TakesNothing }
func (unknown) adminOnly() bool                  { return false }
func (unknown) offer() string                    { return "" }
func (unknown) configuration() Configuration     { return Configuration{} }
func (unknown) attributes(Inputs, Attributes)    {}
func (unknown) capacities(Amounts) Capacities    { return nil }
