// SPDX-License-Identifier: Apache-2.0

// Package usage computes the use of GPUs by claims, and their promises: it attributes
// readings of the hardware to claims and containers, and meters how long claims hold how
// much. All but [Meter] and [Foreign] is pure.
//
// Out of scope: reading the hardware, the kernel and the kubelet, which package attribution
// does, and the names of metrics, which package telemetry has.
package usage
