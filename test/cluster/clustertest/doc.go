// SPDX-License-Identifier: Apache-2.0

// Package clustertest tests the command cluster on a real machine: clusters
// come up and go, twice, side by side, broken and interrupted, and leave
// nothing behind. It needs root on Linux.
//
// Out of scope: the driver; see test/e2e.
package clustertest
