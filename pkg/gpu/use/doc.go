// SPDX-License-Identifier: Apache-2.0

// Package use decides what a GPU admits now: whether a device can be used in the
// way that a claim wants, given the GPU's health, compute mode, MIG mode, MPS
// ability and external allocations. It holds the advice for an administrator too.
//
// Package catalog publishes its answers as taints, and package claim refuses claims
// with them.
//
// Package use is pure: it reads values of package gpu and does no I/O.
package use
