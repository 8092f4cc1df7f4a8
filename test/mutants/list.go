// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// all returns the mutants of all packages.
func all() []mutant {
	return slices.Concat(
		valueMutants(),
		fileMutants(),
		publishMutants(),
		fleetMutants(),
		faultMutants(),
		claimMutants(),
		occupancyMutants(),
		nodeMutants(),
		safetyMutants(),
		hardwareMutants(),
		limitMutants(),
		usageMutants(),
	)
}
