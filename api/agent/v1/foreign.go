// SPDX-License-Identifier: Apache-2.0

package v1

import "time"

const (
	// MaxForeignDevices is the limit of the devices of a [Foreign]. A DGX in MIG mode has 56
	// MIG devices.
	MaxForeignDevices = 256
	// MaxForeignPIDs is the limit of the process IDs of a [ForeignDevice].
	MaxForeignPIDs = 8
)

// Foreign is the result of the last check for processes of pods that no claim explains. The
// agent checks the devices that claims hold when it compares the claims with the API server, by
// default every five minutes. It names no pods, which are other tenants'.
type Foreign struct {
	// Checked is the time of the check.
	Checked time.Time `json:"checked"`
	// Devices are the checked devices, at most [MaxForeignDevices]. The first ones have such
	// processes, the others have none, each in order of their names. On a device that is missing
	// the processes are not known.
	Devices []ForeignDevice `json:"devices"`
}

// ForeignDevice is a device that a claim holds, and the processes of pods without a claim for
// it.
type ForeignDevice struct {
	// Device is the name of the device in its ResourceSlice, such as "gpu-1b-00".
	Device string `json:"device"`
	// Processes is the number of the processes; 0 if there are none.
	Processes int `json:"processes"`
	// PIDs are process IDs of the node, in order, at most [MaxForeignPIDs].
	PIDs []int `json:"pids,omitempty"`
	// MemoryUsedBytes is the memory that the processes use, in bytes. It is nil if there are
	// none, or if the driver does not report the memory of each.
	MemoryUsedBytes *uint64 `json:"memoryUsedBytes,omitempty"`
}
