// SPDX-License-Identifier: Apache-2.0

// Package catalog describes the GPUs of a node to the scheduler: it turns a
// [gpu.Node] and what is known of its health into the devices, attributes,
// capacities and taints of a resourceslice.DriverResources.
//
// It is pure: the same input gives the same output, in the same order. Looking
// at the hardware, deciding what is healthy and writing to the API server are
// package controller's; making an allocation real is package claim's, which
// asks here what a capacity means ([ShareOffer.Share], [Slots]).
package catalog
