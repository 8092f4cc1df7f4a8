// SPDX-License-Identifier: Apache-2.0

// Package claim is the life of a prepared claim: what an journal.Device
// ResourceClaim needs done on this node, doing it, undoing it, and bringing it
// to rest after a crash.
//
// A claim's allocation and configuration give a plan, an ordered list of steps.
// A journal, one record per claim in package store, names each step before it
// acts and keeps its result after; the CDI spec, which lets containers start,
// comes last. Undo runs the journal backwards. The phase of a claim is never
// stored, it follows from the record; [Manager] draws it.
//
// Several claims are worked on at the same time, and during a rolling update in
// two processes, so the disk is the truth and memory holds none of it. Locks are
// per claim, per device and per physical GPU (lock.go has their order), and
// nothing waits for the API server while it holds one. The lock of a GPU is held
// for what concerns its other devices too, and not while an MPS daemon starts.
//
// # What a claim holds when its record is lost
//
// A record can be damaged, be of a newer release (after a downgrade), or be
// gone because somebody emptied the state directory. Containers of the claim
// may run all the same, so its GPUs must not look free. The CDI spec is the
// witness: a claim without a readable record holds the devices that its CDI
// spec names, until it is unprepared, which the caller also does for claims that
// the API does not know any more. Only where the spec is damaged or gone too is
// nothing known and nothing held; no container can start from it then. A
// reboot ends all of this: containers are gone, and so is, on tmpfs, the spec.
//
// # Partitions
//
// Nothing on a GPU says who has cut it. The journal does: before a partition is
// made it names profile and place, which were vacant then, so after a crash
// what is found there is the claim's, and what an administrator has made is
// never taken for ours. The CDI spec repeats what the journal says of the
// partition, for the case that the record is lost; without either sign a partition
// stays. A MIG mode that was switched on for claims is noted for
// its GPU, and goes off with the last partition there.
//
// # Sharing
//
// A claim has a device whole, a share of its memory, or slots of its time.
// Shares and slots of one device are several claims', and so is what they need:
// the partition, the MPS daemon, the time slice. Each is made with the first
// claim and ends with the last, in whichever order they come and go, and whoever
// of two processes does it: under the lock of the device the records say who else
// there is. What a daemon is to be is not kept anywhere, it follows from them:
// its ceilings are the limits of its largest client. What a process is held to
// is decided once, when the claim is prepared, and does not change with flags.
//
// The spec of a claim tells shares from the whole, so that a share whose record
// is lost keeps its neighbours, and theirs, as they are.
//
// Out of scope: the kubelet's protocol, the API server, and what to publish.
package claim
