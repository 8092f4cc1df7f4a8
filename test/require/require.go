// SPDX-License-Identifier: Apache-2.0

// Package require ends tests whose preparation fails.
package require

import "testing"

// NoError ends the test unless err is nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
