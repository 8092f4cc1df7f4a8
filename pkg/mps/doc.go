// Package mps owns the control daemons of CUDA's Multi-Process Service on a
// node: the supervisor that starts, asks, changes, restarts and stops them, the
// protocol in which the node agent tells it what is to be, and the agent's end
// of it, [Client].
//
// Out of its scope are what a share's limits are and who has one (package
// claim), and the environment and mounts of clients (package cdi). The compute
// mode of a GPU is never touched.
package mps
