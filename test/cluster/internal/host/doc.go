// SPDX-License-Identifier: Apache-2.0

// Package host is what a test cluster does to the machine it runs on, each
// thing with its undoing: Debian packages, the network namespace, cgroups,
// mounts and kernel settings.
//
// Out of scope: Kubernetes. Nothing here knows what the cluster runs.
package host
