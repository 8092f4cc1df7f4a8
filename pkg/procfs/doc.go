// Package procfs reads what the kernel says of the node's processes: the name,
// the start time, and the pod and container that a process belongs to. Everything
// is read below a [Root]. Only files are read that need no privilege.
//
// Out of scope: which GPU a process uses (package nvml), and ending processes.
package procfs
