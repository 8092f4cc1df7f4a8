// SPDX-License-Identifier: Apache-2.0

// Package nodelabels keeps labels of nodes that describe their GPUs, for clusters without
// NVIDIA's GPU feature discovery.
//
// One controller of the cluster derives the labels from the ResourceSlices of the driver. It
// never changes a label that it has not set, and no label of a node with feature discovery.
// Agents have no right to change nodes.
package nodelabels
