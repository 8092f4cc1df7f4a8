// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// LoggedXID is an XID that the NVIDIA driver has logged.
type LoggedXID struct {
	// At is the time of the record since the boot. All readers of the log have the same.
	At     time.Duration
	GPU    PCIAddress
	Number uint64
	// PID is the process in the machine's PID namespace, 0 if the driver does not know it.
	PID int
	// Command is the start of the process' name, which its tenant chooses.
	Command string
}
