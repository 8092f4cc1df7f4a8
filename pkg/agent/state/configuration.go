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
	// Known is set once every input was read and a scan of the hardware has ended. Both may
	// have failed.
	Known bool
	// Hardware is the revision of the hardware for which the node follows it.
	Hardware uint64
	// Problem has every problem of the inputs, used or not; nil if there is none.
	Problem error
}

// Equal reports whether both are the same.
func (c Configuration) Equal(other Configuration) bool {
	same := sameText(c.Problem, other.Problem)
	c.Problem, other.Problem = nil, nil
	return same && reflect.DeepEqual(c, other)
}

// Features are what the cluster supports.
type Features struct {
	// Restrictions of the published devices that follow from missing features of the cluster.
	catalog.Restrictions
	// Known is set once the version of the API server was requested. Err is why the version is
	// not known yet: then the API server accepts no devices either.
	Known bool
	Err   error
	// OldVersion is the version of an API server whose scheduler may be too old for
	// counters. It is empty otherwise.
	OldVersion string
}

// Equal reports whether both are the same.
func (f Features) Equal(other Features) bool {
	return f.Restrictions == other.Restrictions && f.Known == other.Known && sameText(f.Err, other.Err) && f.OldVersion == other.OldVersion
}

// CountersHoldSince is the first release whose scheduler counts the counter use of
// allocated shareable devices. The counters belong to the device's GPU. Earlier
// ones count it for the claims of one scheduling cycle only, and then promise the
// GPU as a whole, in MIG devices and in time slices at once. The release of the API
// server stands for that of the scheduler, which no API reports.
const CountersHoldSince = "1.36.2"

// Catalog returns the catalog of the node's devices.
func (s Snapshot) Catalog(settings catalog.Settings) catalog.Catalog {
	return catalog.New(catalog.Inputs{
		Settings: settings, NodeConfig: s.Configuration.Followed.Config, Restrictions: s.Features.Restrictions,
		Partitions: s.Configuration.Followed.Layout, Conditions: s.conditions(), Taken: s.Claimed.Taken, InUse: s.Claimed.InUse,
	})
}
