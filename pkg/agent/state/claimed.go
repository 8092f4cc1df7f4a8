// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Claimed is what claims hold and have changed.
type Claimed struct {
	Changes
	// InUse are the held devices that new claims must not get, although the cluster counts
	// them as free.
	InUse catalog.InUse
	// Taken is the memory that claims took of devices when the ledger last ordered them.
	Taken catalog.Taken
}

// Equal reports whether both are the same.
func (c Claimed) Equal(other Claimed) bool {
	return maps.Equal(c.Held, other.Held) && maps.Equal(c.Kept, other.Kept) &&
		maps.Equal(c.MIGModes, other.MIGModes) && maps.Equal(c.Exclusive, other.Exclusive) &&
		maps.Equal(c.InUse, other.InUse) && maps.Equal(c.Taken, other.Taken)
}

// Changes are what claims have made of the GPUs. Everything else on a GPU is an
// administrator's.
type Changes struct {
	// Held are the devices that claims hold.
	Held catalog.Held
	// Kept are the UUIDs of MIG devices that claims have made and that stay without claims.
	Kept map[string]bool
	// MIGModes are the GPUs whose MIG mode claims have switched on. Exclusive are the GPUs
	// that claims have put into EXCLUSIVE_PROCESS.
	MIGModes, Exclusive map[gpu.PCIAddress]bool
}

// During returns the changes while a GPU was read, from those before and after the read.
// Claims come and go meanwhile: a partition or a mode in one of both belongs to a claim.
func During(before, after Changes) Changes {
	return Changes{
		Held: union(before.Held, after.Held), Kept: union(before.Kept, after.Kept),
		MIGModes: union(before.MIGModes, after.MIGModes), Exclusive: union(before.Exclusive, after.Exclusive),
	}
}

// union returns the entries of both maps.
func union[M ~map[K]bool, K comparable](a, b M) M {
	both := M{}
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}
