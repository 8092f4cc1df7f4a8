// SPDX-License-Identifier: Apache-2.0

// Package browser tests the pages of "kubectl gpu ui" in headless Chromium, with the real
// command and an API server that serves lists from memory.
//
//	go test -update-screenshots
//
// takes the screenshots of the documents anew.
package browser
