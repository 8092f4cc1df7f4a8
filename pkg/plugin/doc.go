// SPDX-License-Identifier: Apache-2.0

// Package plugin connects the driver to the kubelet and to the claims in the API
// server. It implements upstream's [kubeletplugin.DRAPlugin] on top of package claim.
//
// It prepares and unprepares claims for the kubelet, reports the health of devices,
// writes status.devices from a queue, records metrics, and compares the held claims
// with the API.
//
// Out of scope: the steps that prepare a claim (package claim), the published devices
// (package controller), and the HTTP server, for which this package has only the
// handlers.
package plugin
