// SPDX-License-Identifier: Apache-2.0

// Package plugin is the driver's face towards the kubelet and the API server's
// claims: it implements upstream's [kubeletplugin.DRAPlugin] on top of package
// claim.
//
// It prepares and unprepares what the kubelet asks for, tells the kubelet how
// the devices are, writes what is only reported (status.devices, metrics) from
// a queue, and compares the claims held with the claims in the API. How a claim
// becomes devices in a container is package claim's business, what is published
// package controller's. The HTTP endpoints are only rendered here; the command
// serves them.
package plugin
