// SPDX-License-Identifier: Apache-2.0

// Package plan decides how a claim uses its devices. It is pure: it makes a [Plan] or an
// error from the allocation and configuration of a claim and facts about the node. It is
// the last check that rejects an allocation that does not fit the user's request. It also
// rejects unknown devices, GPUs with a fault, devices that another claim holds, and
// configurations that do not fit the type of the device. It ignores results of other drivers.
//
// Out of scope: the steps that a plan takes on the node, and their order.
package plan
