// SPDX-License-Identifier: Apache-2.0

//go:build !race

package claim_test

// checksPerProperty is the number of random sequences of a property test. The race
// detector makes them seven times slower and gets fewer, so `make unit` also runs the
// package without it.
const checksPerProperty = "100"
