// SPDX-License-Identifier: Apache-2.0

package state

import (
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Attributes returns the attributes of a device, also the ones that are published only on
// request. It returns nil if the device is not known. They do not depend on what claims
// hold.
func (s Snapshot) Attributes(settings catalog.Settings, name kind.Name) kind.Attributes {
	return s.Catalog(settings).Attributes(s.Node(), name)
}

// Attributes has the attributes of the node's devices as of the present state. Each is
// derived once, when it is first read, until a table changes from which it follows: that
// compares each GPU with each other GPU, and a claim needs the attributes of its devices.
type Attributes struct {
	state    *State
	settings catalog.Settings

	mu        sync.Mutex
	revisions Revisions // of the tables from which known follows
	known     map[kind.Name]kind.Attributes
}

// Attributes returns the attributes in a catalog with the settings.
func (s *State) Attributes(settings catalog.Settings) *Attributes {
	return &Attributes{state: s, settings: settings}
}

// Of returns the attributes of a device as [Snapshot.Attributes] does. They must not be
// changed.
func (a *Attributes) Of(name kind.Name) kind.Attributes {
	now := a.state.Snapshot()
	revisions := now.Revisions
	revisions.Claimed = 0 // attributes do not depend on it
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || a.revisions != revisions {
		a.revisions, a.known = revisions, map[kind.Name]kind.Attributes{}
	}
	attributes, known := a.known[name]
	if !known {
		attributes = now.Attributes(a.settings, name)
		// Names of unknown devices are without limit.
		if attributes != nil {
			a.known[name] = attributes
		}
	}
	return attributes
}
