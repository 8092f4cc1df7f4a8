// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes node on one Linux machine for tests
// and demos: etcd, the control plane, kube-proxy, kubelet, containerd and
// runc, all in a network namespace of their own. [Up] and [Down] are
// idempotent, and Down leaves nothing behind.
//
// A cluster NAME can have further nodes, NAME.2 to NAME.9. Each is a [Layout] like the
// first, without a control plane: its network namespace is joined to that of the first node, which
// routes. Its kubelet and container runtime see the node's own folder also at the path of the first node's
// folder, so that pods find the same paths on all nodes, as on machines of their own.
//
// Out of scope: upgrades, DNS inside the cluster,
// and anything about GPUs. The users of a cluster start the driver's agent; it needs
// only the facts in cluster.json ([Info]).
package cluster
