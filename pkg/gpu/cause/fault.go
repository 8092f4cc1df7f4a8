// SPDX-License-Identifier: Apache-2.0

package cause

import "slices"

// Fault is an XID that ends a program and does not make its GPU unhealthy by itself. The texts are
// clauses, as in a [Cause].
type Fault struct {
	XID uint64
	// Meaning says what happened, and how the GPU is.
	Meaning string
	// User is the remedy for the owner of the program.
	User string
	// Follows is set for an XID that follows from another one, or from the end of the program. It ends
	// no other program.
	Follows bool
}

// again is the end of most remedies.
const again = "correct the program, and start it again"

// faults has the faults in the order of their numbers.
//
// Source: NVIDIA's XID catalogue
// (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
var faults = []Fault{
	{XID: 13, Meaning: "the program accessed memory outside of its bounds or ran an invalid instruction; the GPU is well", User: "find the kernel (compute-sanitizer), " + again},
	{XID: 31, Meaning: "the program accessed an address of the GPU's memory that is not mapped; the GPU is well", User: "find the access (compute-sanitizer), " + again},
	{XID: 32, Meaning: "the program sent invalid commands to the GPU; the GPU is well", User: "start the program again; if it happens again, use other releases of CUDA and the program"},
	{XID: 43, Meaning: "the program made a fault and was ended; the GPU is well", User: "read the program's log, " + again},
	{XID: 45, Meaning: "the driver removed the program's work from the GPU, after another error or because the program ended; the GPU is well", User: "look for an earlier error; if the program was to end, nothing", Follows: true},
	{XID: 68, Meaning: "the video decoder refused the program's data; the GPU is well", User: "check the video that the program decodes, and start it again"},
	{XID: 69, Meaning: "the program used the GPU in a way that it does not support; the GPU is well", User: "use a release of CUDA and of the program for this GPU, and start it again"},
	{XID: 94, Meaning: "a memory error of the GPU reached the program, and was contained in it; other memory can be used", User: "start the program again; its last results may be wrong"},
	{XID: 109, Meaning: "a kernel of the program did not end in time, so the GPU could not switch to other work", User: "make the kernel shorter or find out why it hangs, and start the program again; if it happens with other programs too, tell the administrator"},
}

// FaultOf returns the fault of an XID. ok is false for an XID that is not in the table.
func FaultOf(xid uint64) (f Fault, ok bool) {
	i := slices.IndexFunc(faults, func(f Fault) bool { return f.XID == xid })
	if i < 0 {
		return Fault{}, false
	}
	return faults[i], true
}

// Faults returns all faults of programs in the order of the documents.
func Faults() []Fault { return slices.Clone(faults) }
