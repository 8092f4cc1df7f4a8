// SPDX-License-Identifier: Apache-2.0

// Package inventory knows the GPUs of the node: it finds them on the PCI bus and reads
// them by NVML, follows their events, keeps faults beyond the end of the agent, and knows
// which GPUs device
// plugins have given to pods.
//
// A [View] is what is known at one moment, as an immutable value. An [Inventory]
// scans once when it starts, then after hardware events, often while a GPU is
// missing or faulty, and rarely while all is well, because not every change has an
// event; see [pace].
//
// Which events mark a GPU as faulty and what ends a fault are decided by pure
// functions ([causeOf], [examine], [repair]). Each faulty GPU has a record on disk
// ([faultRecords]).
//
// Out of scope: what is published of a GPU (package catalog) and when (package
// controller).
package inventory
