// SPDX-License-Identifier: Apache-2.0

// Package step holds what the plan of a claim does to the node, one file per step.
// A step answers every question about itself; see [Step]. The order of the steps is
// the list in [New]: what others build on comes first, and the CDI spec, which lets
// containers start, last.
//
// To add a step, write its file and add a line to the list. Raise the version of the
// records (package journal), because an older release cannot undo the step. The
// contract that every step has to keep is in contract_test.go.
//
// # Several claims, one thing
//
// A claim has a device whole, a share of its memory, or slots of its time. Several
// claims can share a device, and with it what they need: the partition, the MPS
// daemon, the time slice. Each is made with the first claim and ends with the last,
// in any order of their coming and going and in either of two processes: under the lock
// of the device, the records list the other users. The description of a daemon is
// stored nowhere: it follows from the records of its users.
//
// # Partitions
//
// Nothing on a GPU says which program has cut it. The journal does: before a
// partition is made, its entry names profile and place, which were vacant then. So
// a partition found there after a crash is the claim's, and an administrator's
// partition is never taken for this driver's. The CDI spec repeats the journal's result
// for the case that the record is lost; a partition that neither of them names stays.
package step
