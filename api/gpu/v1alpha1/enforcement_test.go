// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestEnforcementsAreOrderedByStrictness(t *testing.T) {
	all := []Enforcement{"", EnforcementNone, EnforcementCooperative, EnforcementDaemon, EnforcementDriver}
	for i, a := range all {
		for j, b := range all {
			if got := a.AtLeast(b); got != (i >= j) {
				t.Errorf("%q at least %q: %t", a, b, got)
			}
			if got, want := a.Weaker(b), all[min(i, j)]; got != want {
				t.Errorf("the weaker of %q and %q: %q, want %q", a, b, got, want)
			}
		}
	}
}
