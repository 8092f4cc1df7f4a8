// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "fmt"

// ComputeMode says which processes may open contexts on a GPU.
type ComputeMode string

// NVML's compute modes, but the one that CUDA 8 removed.
const (
	ComputeModeDefault          ComputeMode = "Default"
	ComputeModeProhibited       ComputeMode = "Prohibited"
	ComputeModeExclusiveProcess ComputeMode = "ExclusiveProcess"
)

// TimeSlice is the time for which a process computes before the GPU switches to the
// next one.
type TimeSlice string

// The time slices of nvidia-smi's compute policy, in the order of its numbers 0 to 3.
const (
	TimeSliceDefault TimeSlice = "Default"
	TimeSliceShort   TimeSlice = "Short"
	TimeSliceMedium  TimeSlice = "Medium"
	TimeSliceLong    TimeSlice = "Long"
)

// TimeSlices returns all time slices in the order of their numbers.
func TimeSlices() []TimeSlice {
	return []TimeSlice{TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong}
}

// FabricState is the state of a GPU's registration with its NVSwitch fabric. CUDA
// fails to initialise (error 802) until it is [FabricCompleted].
type FabricState string

// The fabric states of NVML. FabricFailed is a completed registration whose status is
// an error.
const (
	FabricNotStarted FabricState = "not-started"
	FabricInProgress FabricState = "in-progress"
	FabricCompleted  FabricState = "completed"
	FabricFailed     FabricState = "failed"
)

// RecoveryAction is an action on a GPU that NVML requests from an administrator.
type RecoveryAction string

// The recovery actions of NVML's field 230.
const (
	RecoveryNone          RecoveryAction = "none"
	RecoveryGPUReset      RecoveryAction = "gpu-reset"
	RecoveryNodeReboot    RecoveryAction = "node-reboot"
	RecoveryDrainP2P      RecoveryAction = "drain-p2p"
	RecoveryDrainAndReset RecoveryAction = "drain-and-reset"
	RecoveryIMEXDomain    RecoveryAction = "recover-imex-domain"
	RecoveryBusReset      RecoveryAction = "bus-reset"
	RecoverySystemReboot  RecoveryAction = "system-reboot"
)

// linkRemote is the kind of device at the far end of an NVLink.
type linkRemote string

// The far ends that NVML reports. The empty value means unknown.
const (
	remoteGPU    linkRemote = "GPU"
	remoteSwitch linkRemote = "Switch"
	remoteCPU    linkRemote = "CPU" // IBM POWER NPUs, Grace
)

// Version is a version of two numbers: of CUDA, or of a GPU's compute capability.
type Version struct {
	Major, Minor int
}

// String returns "12.8".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
