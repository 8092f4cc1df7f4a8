// SPDX-License-Identifier: Apache-2.0

// Package step holds the steps with which a plan changes the node, one file per step.
// See [Step] for the methods of a step. The list in [New] is the order of the steps: a
// step comes after the steps that it depends on, and the CDI spec, which lets containers
// start, comes last. Partitions come before MPS daemons, so a claim can have a share of a
// MIG device.
//
// To add a step, write its file and add a line to the list. Five methods are required; the
// other interfaces in step.go are for steps that need them. Raise the version of the records
// (package journal), because an older release cannot undo the step. Every step must pass the
// contract in contract_test.go.
//
// A step that changes a setting of a GPU for as long as claims need it has a setting, which
// remembers the original value: see setTimeSlice.
//
// Steps change the node and never the record. They return their results, and package claim
// keeps them.
//
// # Several claims, one thing
//
// A claim has a whole device, a share of its memory, or slots of its time. Claims that
// share a device also share its partition, MPS daemon and time slice. The first claim
// creates them and the last claim removes them, in any order and in either of two
// processes: the caller holds the lock of the device, and the records list its other
// users. The description of a daemon is not stored, but derived from the records of its
// users.
//
// # Partitions
//
// A GPU does not record which program created a partition. The journal does: before the
// driver creates a partition, the journal entry names the profile and the placement,
// which are vacant at that time. So a partition found there after a crash is the
// claim's, and an administrator's partition is never mistaken for this driver's. The CDI
// spec repeats the journal's result in case the record is lost. A partition that neither
// of them names stays.
package step
