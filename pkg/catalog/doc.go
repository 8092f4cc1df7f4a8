// SPDX-License-Identifier: Apache-2.0

// Package catalog describes the GPUs of a node to the scheduler: it converts a
// [gpu.Node] and the health of its GPUs into the devices, attributes, capacities
// and taints of a resourceslice.DriverResources.
//
// It is pure: for the same input it returns the same output, in the same order.
// Package inventory scans the hardware and decides which GPUs are healthy, and
// package controller writes to the API server. Package claim prepares allocations
// and uses [ShareOffer.Share] to read their capacities.
package catalog
