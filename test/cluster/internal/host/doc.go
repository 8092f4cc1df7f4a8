// SPDX-License-Identifier: Apache-2.0

// Package host makes and undoes the changes of a test cluster to the machine:
// Debian packages, the network namespace, cgroups, mounts and kernel settings.
//
// Out of scope: Kubernetes. Nothing here knows what the cluster runs.
package host
