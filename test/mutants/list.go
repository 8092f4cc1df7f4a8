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
		kubectlMutants(),
		faultMutants(),
		claimMutants(),
		occupancyMutants(),
		nodeMutants(),
		configMutants(),
		safetyMutants(),
		hardwareMutants(),
		limitMutants(),
		usageMutants(),
	)
}
