// SPDX-License-Identifier: Apache-2.0

// Package plan decides how a claim uses its devices. It is pure: the allocation and
// configuration of a claim and facts about the node go in, a [Plan] or an error comes
// out. It is the last line of defence against an allocation that cannot be what the
// user wants.
//
// Out of scope: the steps that a plan takes on the node, and their order.
package plan
