// SPDX-License-Identifier: Apache-2.0

// Package kubelet connects the driver to the kubelet and to the claims in the API
// server. It implements upstream's [kubeletplugin.DRAPlugin] on top of package claim.
//
// It prepares and unprepares claims for the kubelet, reports the health of devices,
// writes status.devices from a queue, and compares the held claims with the API. An
// [Observer] counts and measures all that.
//
// At each comparison it also checks the held devices. A finding is in the log and in a
// condition of the claims, such as ForeignProcess: isOwnCondition has them all. A finding that
// cannot be checked is not reported, except that MemoryUnlimited is Unknown then, and its metric
// has no value.
//
// Out of scope: the steps that prepare a claim (package claim), the published devices
// (package controller), and metrics (package telemetry).
package kubelet
