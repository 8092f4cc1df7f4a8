// SPDX-License-Identifier: Apache-2.0

// Package supervisor runs the control daemons of CUDA's Multi-Process Service on a
// node: it starts, queries, changes, restarts and stops them as the node agent asks
// through the protocol of package mpsv1.
//
// Out of scope: which claim has which share and limits, and the environment and mounts of
// clients (package claim). It never changes the compute mode of a GPU.
package supervisor
