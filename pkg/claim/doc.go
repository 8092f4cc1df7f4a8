// SPDX-License-Identifier: Apache-2.0

// Package claim is the life of a claim on this node: it prepares and unprepares the
// devices of an allocated ResourceClaim, and brings every claim to a known state after
// a crash.
//
// The work is divided among three internal packages. Package plan decides how a claim
// uses its devices, from inputs that are read before any lock is taken. Package journal keeps
// one record per claim, which names each step before it acts and keeps its result after. Package step
// holds the steps, one file each, and their order. Package claim runs the steps and
// names none of them. The phase of a claim is never stored, it follows from the record;
// reach in phase.go draws it.
//
//   - A plan is a value: plan.Make decides it, plan.Against compares it with the other
//     holders under the locks, and nothing changes it afterwards.
//   - A record is a plan and its progress. Only this package, which runs the steps,
//     writes the progress.
//   - Package ports declares what claims need of their node. This package names no adapter.
//
// Several claims are worked on at the same time, and during a rolling update in two
// processes, so the disk is the truth and memory holds no more than a cache. Locks are
// per claim, per device and per physical GPU (lock.go has their order), and the API
// server is never called while a lock is held. The lock of a GPU is held for work that
// concerns its other devices too, and not while an MPS daemon starts.
//
// Out of scope: the kubelet's protocol, the API server, and the published devices.
//
// # Evidence of use
//
// The records list the claims that should use a device. Processes show which pods do.
//
//   - Before a claim is prepared its GPUs must answer. A process on a device that belongs
//     to none of its claims makes the device in use, and Prepare waits for its end. A pod
//     may join a claim without a call to the driver. So for a process of an unknown pod the
//     kubelet's pods are read first, and on a shared device then the API server. If it does
//     not answer, the device is not prepared.
//   - A claim that is prepared already is not checked: Prepare must succeed at once after a
//     restart of the kubelet.
//   - Before a claim is undone, its processes must have ended; see checkEnded. A pod that was
//     seen with the claim stays in its record until it has ended.
//   - On request, [Manager.ForeignProcesses] lists foreign processes on held devices, and
//     [Manager.CheckLimits] containers without their memory limit.
//
// Some processes do not count: processes that have ended, MPS daemons and servers (the PID
// namespace distinguishes them from a container's process of that name), and processes of
// the host that only draw. A pod's process that only draws counts. For the memory limits a
// client of MPS counts as a process of its container, and its server does not count.
package claim
