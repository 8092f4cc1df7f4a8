package v1alpha1

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// GroupVersion is the apiVersion of every configuration here. The group is
// that of the API, whatever name the driver runs under.
const GroupVersion = "gpu.nvidia.com/v1alpha1"

// The kinds of configuration.
const (
	KindGpuConfig   = "GpuConfig"
	KindMigConfig   = "MigConfig"
	KindShareConfig = "ShareConfig"
)

// Config is one decoded configuration: a [GpuConfig], [MigConfig] or
// [ShareConfig].
type Config interface {
	// Kind of the configuration, also where it was converted from another
	// group's.
	Kind() string
}

// GpuConfig configures GPUs that are allocated as a whole, and time slices of
// them.
type GpuConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing says how several containers or pods use the claim's GPUs
	// together; nil leaves the GPUs as they are.
	Sharing *Sharing `json:"sharing,omitempty"`
}

// MigConfig configures MIG devices that are allocated as a whole.
type MigConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing as in [GpuConfig], but a time slice other than Default is
	// invalid: the hardware has none for MIG devices.
	Sharing *Sharing `json:"sharing,omitempty"`
}

// ShareConfig configures shares: requests for less than all memory of a GPU or
// MIG device.
type ShareConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Strategy holds a share to what it was given; MPS by default.
	Strategy ShareStrategy `json:"strategy,omitempty"`
	// Processes that use the share at a time, 1 to [gpu.MPSMaxClients], 1 by
	// default: its memory and compute are divided among them. A share has as large
	// a part of that many as of its device's memory. With the strategy
	// Plain, which limits nobody, it cannot be given and is 0.
	Processes int `json:"processes,omitempty"`
	// Compute of a share whose request names none; Proportional by default.
	// With the strategy Plain it cannot be given and is empty.
	Compute ComputeMode `json:"compute,omitempty"`
}

// Sharing says how several containers or pods use one claim's devices together.
type Sharing struct {
	// Strategy has no default.
	Strategy SharingStrategy `json:"strategy,omitempty"`
	// TimeSlicing is set exactly where Strategy is TimeSlicing.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS is set exactly where Strategy is MPS.
	MPS *MPS `json:"mps,omitempty"`
}

// SharingStrategy is a way to use one claim's devices together.
type SharingStrategy string

// The strategies of [Sharing].
const (
	SharingTimeSlicing SharingStrategy = "TimeSlicing"
	SharingMPS         SharingStrategy = "MPS"
)

// TimeSlicing configures taking turns.
type TimeSlicing struct {
	// Interval of a turn; Default by default.
	Interval gpu.TimeSlice `json:"interval,omitempty"`
}

// MPS configures the clients of an MPS daemon: every process of every
// container that uses the claim is one.
type MPS struct {
	// ThreadPercentage of the multiprocessors that a process can have, 1 to
	// 100; nil for no limit.
	ThreadPercentage *int `json:"threadPercentage,omitempty"`
	// MemoryLimit of a process on each device, in whole Mi; nil for no limit.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
	// PerDevice wins over MemoryLimit. No device is named twice.
	PerDevice []DeviceLimit `json:"perDevice,omitempty"`
	// MultiUser says that the clients are of several users (UIDs). It changes
	// nothing: the claim is refused where the node's MPS serves one user at a
	// time.
	MultiUser bool `json:"multiUser,omitempty"`
}

// DeviceLimit is the memory limit of a process on one device.
type DeviceLimit struct {
	Device DeviceRef `json:"device"`
	// MemoryLimit in whole Mi.
	MemoryLimit resource.Quantity `json:"memoryLimit"`
}

// DeviceRef names one of a request's devices by its index, counted from 0, or
// by its UUID ("GPU-…", "MIG-…"). In JSON an index is a number or a string.
type DeviceRef string

// Index of the device, where it is named by one.
func (r DeviceRef) Index() (index int, ok bool) {
	index, err := strconv.Atoi(string(r))
	return index, err == nil
}

// ShareStrategy is what holds a share to what it was given.
type ShareStrategy string

// The strategies of a share.
const (
	// ShareMPS: an MPS daemon limits its processes.
	ShareMPS ShareStrategy = "MPS"
	// SharePlain: nobody does; the scheduler accounts for it.
	SharePlain ShareStrategy = "Plain"
)

// ComputeMode says how much compute a share has whose request names none.
type ComputeMode string

// The compute modes.
const (
	// ComputeProportional: as large a part of the multiprocessors as of the
	// memory.
	ComputeProportional ComputeMode = "Proportional"
	// ComputeBurst: no limit.
	ComputeBurst ComputeMode = "Burst"
)

// Kind implements [Config].
func (*GpuConfig) Kind() string { return KindGpuConfig }

// Kind implements [Config].
func (*MigConfig) Kind() string { return KindMigConfig }

// Kind implements [Config].
func (*ShareConfig) Kind() string { return KindShareConfig }
