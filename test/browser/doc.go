// SPDX-License-Identifier: Apache-2.0

// Package browser tests the pages of "kubectl gpu ui" in headless Chromium. The command
// is the real one; an API server serves lists from memory. This command takes new
// screenshots for the documents:
//
//	go test -update-screenshots
package browser
