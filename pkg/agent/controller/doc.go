// SPDX-License-Identifier: Apache-2.0

// Package controller decides when the node's devices are published. It passes a
// snapshot of package state to package catalog, and publishes the resulting devices if
// they differ from the published ones.
package controller
