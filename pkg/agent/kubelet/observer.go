// SPDX-License-Identifier: Apache-2.0

package kubelet

import "time"

// Observer records what the plugin does and finds. Its methods are called concurrently and do
// not block.
type Observer interface {
	// Prepared and Unprepared record an attempt. refusal is the [Reason] of a failure.
	Prepared(kinds string, took time.Duration, refusal string)
	Unprepared(took time.Duration, err error)
	// StatusWritten records a write of a claim's status: "ok", "error", or "dropped" if
	// the claim is gone or changed.
	StatusWritten(outcome string)
	// PublishFailed records a failure to publish ResourceSlices.
	PublishFailed(reason string)
	// ProgramFault records an XID that ended programs of a namespace: [FaultOwn], [FaultOther] or
	// [FaultUnknown] says whose program made the fault.
	ProgramFault(xid uint64, blame, namespace string)

	// The other methods replace the last number. UnlimitedContainers has none for a device
	// on which they are unknown.

	StatusQueue(claims int)
	HeldBack(claims int)
	ForeignDevices(devices int)
	ForeignProcesses(byDevice map[string]int)
	UnlimitedContainers(byDevice map[string]int)
	DisturbedShares(byCause map[string]int)
}

// Tasks records the tasks of a loop, which do not overlap. Begin returns the end of a task.
type Tasks interface{ Begin() (end func()) }
