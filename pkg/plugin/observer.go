// SPDX-License-Identifier: Apache-2.0

package plugin

import "time"

// Observer records what the plugin and its [Rivals] do and find. Its methods are called
// concurrently and do not block.
type Observer interface {
	// Prepared records a call to prepare a claim with devices of these kinds. refusal is
	// its [Reason] after a failure.
	Prepared(kinds string, took time.Duration, refusal string)
	// Unprepared records an attempt to unprepare a claim.
	Unprepared(took time.Duration, err error)
	// StatusWritten records a write of a claim's status: "ok", "error", or "dropped" if
	// the claim is gone or changed.
	StatusWritten(outcome string)
	// PublishFailed records a failure to publish ResourceSlices.
	PublishFailed(reason string)

	// The other methods replace the last number.

	// StatusQueue records the number of claims whose status waits to be written.
	StatusQueue(claims int)
	// HeldBack records the number of unneeded claims that keep their devices.
	HeldBack(claims int)
	// OtherDrivers records the number of [Rivals].
	OtherDrivers(drivers int)
	// ForeignDevices records the number of devices that another driver of the name publishes.
	ForeignDevices(devices int)
	// ForeignProcesses records the processes of pods without a claim, by device.
	ForeignProcesses(byDevice map[string]int)
	// UnlimitedContainers records the containers without their memory limit, by device. It
	// has no number for a device on which they are unknown.
	UnlimitedContainers(byDevice map[string]int)
}

// Tasks records the tasks of a loop, which do not overlap.
type Tasks interface {
	// Begin starts a task and returns the function that ends it.
	Begin() (end func())
}
