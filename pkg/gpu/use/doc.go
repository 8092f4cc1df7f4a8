// SPDX-License-Identifier: Apache-2.0

// Package use decides whether a device can be used in the way that a claim requires.
// It considers the GPU's health, compute mode, MIG mode, MPS support and external
// allocations. Its errors include the advice for an administrator.
//
// Package catalog publishes its results as taints, and package claim refuses claims with its
// errors. The texts of faults are in package cause.
//
// Package use is pure: it reads values of package gpu and does no I/O.
package use
