// SPDX-License-Identifier: Apache-2.0

package state

import (
	"reflect"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// Configuration is what the node follows.
type Configuration struct {
	// Selected is the configuration that the inputs select; nil before there is one.
	Selected *catalog.NodeConfig
	// Followed is the record of the configuration and layout that the node follows.
	Followed catalog.NodeRecord
	// Known is set once every input was read, with whatever result.
	Known bool
	// Problem has every problem of the inputs, used or not; nil if there is none.
	Problem error
}

// Equal reports whether both are the same.
func (c Configuration) Equal(other Configuration) bool {
	same := sameText(c.Problem, other.Problem)
	c.Problem, other.Problem = nil, nil
	return same && reflect.DeepEqual(c, other)
}

// Features are what the cluster, the node and the agent support.
type Features struct {
	// Restrictions of the published devices that follow from missing features of the cluster.
	catalog.Restrictions
	// OldVersion is the version of an API server whose scheduler may be too old for
	// counters. It is empty otherwise.
	OldVersion string
	// NoMemoryLimits is why the node or this agent cannot limit the memory of containers,
	// whatever the driver. It is nil if they can.
	NoMemoryLimits error
	// Node is the name of the node, for remedies.
	Node string
}

// Equal reports whether both are the same.
func (f Features) Equal(other Features) bool {
	same := sameText(f.NoMemoryLimits, other.NoMemoryLimits)
	f.NoMemoryLimits, other.NoMemoryLimits = nil, nil
	return same && f == other
}

// Catalog returns the catalog of the node's devices. They are in the order of their names;
// see [catalog.Catalog.Taken].
func (s Snapshot) Catalog(settings catalog.Settings) catalog.Catalog {
	c := catalog.New(settings, s.Configuration.Followed.Config, s.Features.Restrictions)
	c.Partitions, c.Conditions, c.InUse = s.Configuration.Followed.Layout, s.conditions(), s.Claimed.InUse
	return c
}
