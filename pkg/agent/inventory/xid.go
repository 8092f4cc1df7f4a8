// SPDX-License-Identifier: Apache-2.0

package inventory

// xidRule says what follows from an XID. Its texts are in package cause.
//
// Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
type xidRule struct {
	marks marking
	// branch is the first branch of the driver (565 of 565.57.01) whose recovery
	// action considers the XID. It is the catalogue's column "Xid 154 linkage", and 0
	// if there is none. From that branch on, a driver that asks for nothing says that
	// the GPU can be used.
	branch int
}

// marking says when an XID makes its GPU unhealthy.
type marking int

const (
	// noted: never by itself. The GPU is scanned, and the driver's recovery
	// action decides.
	noted marking = iota
	// unlessReported: only if the driver reports no recovery action.
	unlessReported
	// always: at once, even before the driver reports its recovery action.
	always
	// spaced: as noted, but once in [rescanInterval], because programs cause it as often as
	// they want. If the driver changes its recovery action, it reports XID 154 too.
	spaced
	// ignored: never, and the GPU is not scanned.
	ignored
)

// xidRules has the XIDs that do more than have the GPU scanned. The catalogue
// names an action for each:
//
//   - "reset the GPU" or "restart the machine", or the workflow that ends in it:
//     always. A driver that asks for nothing a minute later takes it back, if its
//     recovery action covers the XID.
//   - the NVLink 5 workflow (144 to 150): the number does not tell, because it
//     needs error bits that NVML's events do not carry. Every driver that knows
//     these GPUs reports a recovery action, which is computed from those bits.
//     Without one, the numbers that have a row "reset" mark the GPU; 147 and 148
//     have none.
//   - "restart the application" or "ignore": not here, or ignored if applications
//     cause them often.
//
// Numbers that are left out for other reasons:
//
//   - 94, contained memory error: it ends one application. The row is remapped at
//     the next reset, and "applications can continue to be run until" then.
//   - 109, context switch timeout: the catalogue asks for a reset, but a hanging
//     kernel causes it. A driver from 570 on decides by its recovery action.
//   - 154, recovery action changed: the scan that follows reads the action.
//   - 155, NVLink software error: links that go down on purpose report it too.
//   - 157, 160, 161, resources could not be or were retired: workloads may run.
//   - 159, C2C error: depends on the use of managed memory; the driver decides.
//   - 162 to 165, power smoothing came, went or wears out: "no reset required".
//   - 166 and 170, confidential computing over NVLink: the catalogue names no
//     action; the driver decides.
//   - 168, less memory because of errors in a protected region at boot: the remaining
//     memory is published.
//   - 171 and 172, DRAM or SRAM error: each only says more about a 48.
var xidRules = map[uint64]xidRule{
	46: {always, 0},
	48: {always, 565},
	54: {always, 0},
	62: {always, 565},
	64: {always, 565},
	74: {always, 565},
	// A GPU off the bus does not tell a recovery action. It has been put back when
	// it answers after it was lost, and nothing else shows that.
	79:  {always, 0},
	95:  {always, 565},
	110: {always, 565},
	119: {always, 0},
	120: {always, 565},
	136: {always, 565},
	140: {always, 0},
	143: {always, 575},
	144: {unlessReported, 565},
	145: {unlessReported, 565},
	146: {unlessReported, 565},
	147: {noted, 565},
	148: {noted, 565},
	149: {unlessReported, 565},
	150: {unlessReported, 565},
	151: {always, 0},
	156: {always, 565},
	158: {always, 565},
	// 167 and 169 have no action in the catalogue yet. Without PCIe transfers or
	// with its security processor halted a GPU is unusable.
	167: {always, 0},
	169: {always, 0},

	32:  {marks: spaced}, // invalid commands of an application
	69:  {marks: spaced}, // graphics engine class error
	94:  {marks: spaced},
	109: {marks: spaced},

	// Faults of an application that leave the GPU unchanged.
	13: {marks: ignored}, // graphics engine exception
	31: {marks: ignored}, // memory page fault
	43: {marks: ignored}, // stopped by a fault of the application
	45: {marks: ignored}, // cleaned up after the application
	68: {marks: ignored}, // video decoder exception
}

// eccBranch is the branch of XID 48, which reports the same as an ECC event.
const eccBranch = 565
