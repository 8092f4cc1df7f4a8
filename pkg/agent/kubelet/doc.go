// SPDX-License-Identifier: Apache-2.0

// Package kubelet answers the calls of the kubelet, and publishes the node's devices. It implements
// upstream's [kubeletplugin.DRAPlugin] on top of package claim: it prepares and unprepares claims,
// and reports the health of devices.
//
// Out of scope: the steps that prepare a claim (package claim), the published devices (package
// controller), claims that no call is about (package reconcile), and what users read about their
// claims (package report).
package kubelet
