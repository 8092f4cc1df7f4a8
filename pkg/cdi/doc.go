// Package cdi tells the container runtime of a prepared claim's devices, in the
// Container Device Interface's way: a spec file per claim in a directory that
// the runtime reads.
//
// [Render] is the pure part, from a claim's injections to a spec. [Writer]
// keeps the files: it creates, replaces, lists and removes those that this
// driver wrote and touches no other. [DriverEdits] are what every container
// with a GPU needs of the driver (libraries, binaries, hooks, control device
// nodes), as NVIDIA's nvcdi package finds them.
//
// Out of scope: which device a claim gets and what that device brings along.
package cdi
