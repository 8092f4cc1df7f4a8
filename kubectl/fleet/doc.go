// SPDX-License-Identifier: Apache-2.0

// Package fleet describes the devices of a cluster by its API objects: their holders, free
// devices, and the reason why a claim does not fit. It calls no server, so commands, tests
// and web pages can use it.
//
// The scheduler's own allocator decides whether a claim fits, never an imitation of it. The
// reason for a device that does not fit comes from the same allocator, which tries again
// with one condition only (a selector, the taints, the other claims).
package fleet
