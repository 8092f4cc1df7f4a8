// SPDX-License-Identifier: Apache-2.0

//go:build race

package claim_test

// checksPerProperty is the number of random sequences of a property test.
const checksPerProperty = "20"
