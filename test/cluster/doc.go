// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes node on one Linux machine for tests
// and demos: etcd, the control plane, kube-proxy, kubelet, containerd and
// runc, all in a network namespace of their own. [Up] and [Down] are
// idempotent, and Down leaves nothing behind.
//
// Out of scope: clusters of several nodes, upgrades, DNS inside the cluster,
// and anything about GPUs. The driver's agent is started by whoever uses the
// cluster; it needs no more than what cluster.json says ([Info]).
package cluster
