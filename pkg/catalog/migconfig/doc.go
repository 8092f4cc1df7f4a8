// SPDX-License-Identifier: Apache-2.0

// Package migconfig reads files of NVIDIA's mig-parted, and selects the partitions of
// each GPU of a node. The files name layouts of the MIG devices of a node.
//
// It reads version v1 of the format (https://github.com/NVIDIA/mig-parted), more strictly
// than mig-parted does: a field that is there twice, a filter that cannot be read, two
// entries for one GPU and an index that the node does not have are errors.
//
// Package migconfig is pure. Whether the partitions fit on a GPU, and where, is decided
// by package catalog.
package migconfig
