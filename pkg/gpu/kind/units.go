// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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

// Units returns the units in which claims take devices of the kind. It returns the zero
// value if they take none.
func (k Kind) Units() Units { return k.rules().units }

// HasUnits reports whether claims take devices of the kind in units.
func (k Kind) HasUnits() bool { return k.Units().Capacity != "" }

// Divided returns the kinds that claims take in units.
func Divided() []Kind { return slices.DeleteFunc(All(), func(k Kind) bool { return !k.HasUnits() }) }

// DividesGPU reports whether claims divide a GPU by devices of the kind: by partitions or
// units.
func (k Kind) DividesGPU() bool { return k.HasUnits() || k.Scope() == ScopePartition }

// CheckNumber returns an error unless a GPU can have the number of units.
func (u Units) CheckNumber(n int) error {
	want := "on"
	if u.Most > 0 {
		want = fmt.Sprintf("to %d, %s", u.Most, u.Limit)
	}
	if n < 1 || u.Most > 0 && n > u.Most {
		return fmt.Errorf("%d: %w: want a number from 1 %s", n, gpu.ErrInvalid, want)
	}
	return nil
}

// Numbers are the units of a GPU by kind. A kind that is missing has its standard number.
type Numbers map[Kind]int

// Of returns the number of units of the kind.
func (n Numbers) Of(k Kind) int { return cmp.Or(n[k], k.Units().Standard) }

// With returns a copy with another number for the kind.
func (n Numbers) With(k Kind, number int) Numbers {
	changed := Numbers{}
	maps.Copy(changed, n)
	changed[k] = number
	return changed
}
