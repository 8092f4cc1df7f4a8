// SPDX-License-Identifier: Apache-2.0

// Package procfs reads the node's processes from proc, below a [Root]. It reads the
// name, the start time, the pod and the container of a process, and whether it has
// a file mounted. It reads only files that need no privilege.
//
// Out of scope: which GPU a process uses (package nvml), whether a pod lives (package cgroup),
// and ending processes that run a program.
package procfs
