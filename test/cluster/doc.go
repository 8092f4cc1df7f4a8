// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes node on one Linux machine for tests
// and demos: etcd, the control plane, kube-proxy, kubelet, containerd and
// runc, all in a network namespace of their own. [Up] and [Down] are
// idempotent, and Down leaves nothing behind.
//
// Out of scope: clusters of several nodes, upgrades, DNS inside the cluster,
// and anything about GPUs. The users of a cluster start the driver's agent; it needs
// only the facts in cluster.json ([Info]).
package cluster
