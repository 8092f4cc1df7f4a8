// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// enforcements returns the ways to enforce limits, the least strict first.
func enforcements() []Enforcement {
	return []Enforcement{EnforcementNone, EnforcementCooperative, EnforcementDaemon, EnforcementDriver}
}

// AtLeast reports whether e is as strict as the other, or stricter. An unknown
// enforcement is less strict than all others.
func (e Enforcement) AtLeast(other Enforcement) bool {
	return slices.Index(enforcements(), e) >= slices.Index(enforcements(), other)
}

// Weaker returns the less strict of two enforcements.
func (e Enforcement) Weaker(other Enforcement) Enforcement {
	if e.AtLeast(other) {
		return other
	}
	return e
}
