// SPDX-License-Identifier: Apache-2.0

// Package attribution finds who uses the GPUs of the node. [Reader] reads what claims and
// their containers use, for package usage to attribute. [Occupancy] provides the evidence of
// use that package claim requires.
//
// The processes are NVML's, and their pods and containers the kernel's. Names are from the
// API server and the kubelet, because a process can forge what the kernel shows.
package attribution
