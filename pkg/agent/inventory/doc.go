// SPDX-License-Identifier: Apache-2.0

// Package inventory keeps the state of the node's GPUs: it finds them on the PCI bus,
// reads them by NVML, follows their events, records faults beyond the end of the
// agent, and reads the external allocations of device plugins.
//
// It writes the tables Hardware and Conditions of package state. An [Inventory] scans once
// when it starts, then after hardware events, often while a GPU is missing or faulty, and
// rarely while all is well, because not every change has an event; see [pace].
//
// Pure functions decide which events mark a GPU as faulty and what ends a fault
// ([causeOf], [examine], [repair]). Each faulty GPU has a record on disk
// ([faultRecords]).
//
// Out of scope: the published devices of a GPU (package catalog), and the time of
// their publication (package controller).
package inventory
