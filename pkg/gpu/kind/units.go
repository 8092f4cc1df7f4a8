// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Units are the equal parts of a GPU that claims take, such as slots.
type Units struct {
	// Capacity counts the units.
	Capacity resourceapi.QualifiedName
	// Standard is the number of units of a GPU unless the node sets another.
	Standard int
	// Most is the largest number, and Limit the reason for it; 0 for no limit.
	Most  int
	Limit string
	// Flag of the agent sets the number, and Usage is its help.
	Flag, Usage string
}

// Units returns the units in which claims take devices of the kind; the zero value if they
// take none.
func (k Kind) Units() Units {
	if r, ok := k.rules().(divided); ok {
		return r.units()
	}
	return Units{}
}

// HasUnits reports whether claims take devices of the kind in units.
func (k Kind) HasUnits() bool { return k.Units().Capacity != "" }

// DividesGPU reports whether claims divide a GPU by devices of the kind: by partitions or
// units.
func (k Kind) DividesGPU() bool { return k.HasUnits() || k.Scope() == ScopePartition }

// CheckNumber returns an error unless a GPU can have the number of units.
func (u Units) CheckNumber(n int) error {
	switch {
	case u.Most == 0 && n < 1:
		return fmt.Errorf("%d: %w: want a number from 1 on", n, gpu.ErrInvalid)
	case u.Most > 0 && (n < 1 || n > u.Most):
		return fmt.Errorf("%d: %w: want a number from 1 to %d, %s", n, gpu.ErrInvalid, u.Most, u.Limit)
	}
	return nil
}

// Numbers are the units of a GPU by kind. A kind that is missing has its standard number.
type Numbers map[Kind]int

// Of returns the number of units of the kind.
func (n Numbers) Of(k Kind) int { return cmp.Or(n[k], k.Units().Standard) }

// With returns a copy with another number for the kind.
func (n Numbers) With(k Kind, number int) Numbers {
	changed := Numbers{k: number}
	for other, old := range maps.All(n) {
		if other != k {
			changed[other] = old
		}
	}
	return changed
}
