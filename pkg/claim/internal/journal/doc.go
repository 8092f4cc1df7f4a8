// SPDX-License-Identifier: Apache-2.0

// Package journal keeps the records of claims: one file per claim, in package
// store, with the devices of the claim and the steps of its plan. The disk is the
// truth; several processes may use the same records at the same time, so memory
// holds no more than a cache of the records.
//
// # Lost records
//
// A record can be damaged, be of a newer release (after a downgrade), or be gone
// because the state directory was emptied. Containers of the claim may run all the
// same, so its GPUs must not look free. The CDI spec of the claim is the witness: a
// claim without a readable record holds the devices that its CDI spec names, until
// it is unprepared. Until then it is not prepared again: only a record says with which
// settings. If the spec is damaged or gone too, nothing is known and nothing
// is held; no container can start from such a spec. A reboot ends all of this: the
// containers are gone, and so is the spec, which is on tmpfs.
//
// Out of scope: what the steps do, and when. A result of a step is opaque, unless
// other steps or the list of holders read it (result.go).
package journal
