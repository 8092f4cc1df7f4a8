// SPDX-License-Identifier: Apache-2.0

// Package report tells users what becomes of their claims. It writes status.devices from a queue,
// and creates events on claims and their pods: about refusals, the health of GPUs, faults of
// programs, and MPS daemons that ended.
//
// A finding about held devices is in a condition of the claims, such as ForeignProcess:
// isOwnCondition has them all. A finding that cannot be checked is not reported, except that
// MemoryUnlimited is Unknown then.
//
// Events that stand alone are accessories: no claim waits for them, and a panic starts them again.
//
// Out of scope: what is found and when (package reconcile), and the answers to the kubelet
// (package kubelet).
package report
