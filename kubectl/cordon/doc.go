// SPDX-License-Identifier: Apache-2.0

// Package cordon decides how a GPU is taken out of use and brought back: the
// DeviceTaintRules of a cordon, the pods of a drain, and the declaration of a repair.
//
// A DeviceTaintRule selects all devices of a pool or one device by its name: selectors
// by attributes do not exist in the API. So a cordon is one rule for each device of the
// GPU. Names of devices follow from the PCI address, so there are also rules for the
// devices of the whole GPU that the node does not publish now: an offer that adds time
// slices or seats later is covered. MIG devices have rules if the node publishes them or
// claims hold them; their names depend on the profiles, which the API does not have. An
// annotation of the node names the GPU, and its agent taints all devices of it. The rules work
// also while no agent runs.
//
// The package is pure: the packages commands and evict read and write the objects.
package cordon
