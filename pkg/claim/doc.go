// SPDX-License-Identifier: Apache-2.0

// Package claim is the life of a claim on this node: it prepares and unprepares the
// devices of an allocated ResourceClaim, and brings every claim to a known state after
// a crash.
//
// The work is divided among three internal packages. Package plan decides how a claim
// uses its devices, before any lock is taken. Package journal keeps one record per
// claim, which names each step before it acts and keeps its result after. Package step
// holds the steps, one file each, and their order. Package claim runs the steps and
// names none of them. The phase of a claim is never stored, it follows from the record;
// reach in phase.go draws it.
//
// Several claims are worked on at the same time, and during a rolling update in two
// processes, so the disk is the truth and memory holds no more than a cache. Locks are
// per claim, per device and per physical GPU (lock.go has their order), and the API
// server is never called while a lock is held. The lock of a GPU is held for work that
// concerns its other devices too, and not while an MPS daemon starts.
//
// Out of scope: the kubelet's protocol, the API server, and the published devices.
package claim
