// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Config is a decoded configuration: a [GpuConfig], [MigConfig] or [ShareConfig].
type Config interface {
	runtime.Object
	isConfig()
}

// KindOf returns the kind of a configuration. A converted configuration has a kind
// of this package.
func KindOf(config Config) string { return config.GetObjectKind().GroupVersionKind().Kind }

// GpuConfig configures whole GPUs, and time slices of GPUs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GpuConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing says how the users of one claim share its GPUs. If it is nil, the
	// driver changes nothing.
	Sharing *Sharing `json:"sharing,omitempty"`
}

// MigConfig configures whole MIG devices.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type MigConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Sharing is as in [GpuConfig], but an interval other than Default is invalid:
	// the hardware has no other time slice for MIG devices.
	Sharing *Sharing `json:"sharing,omitempty"`
}

// ShareConfig configures shares: requests for less than all memory of a GPU or MIG
// device.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ShareConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Strategy is the mechanism that limits the share.
	Strategy Strategy `json:"strategy,omitempty"` // [StrategyMPS], [StrategyPlain]; default: [StrategyMPS]
	// Processes is the number of processes that use the share at a time. Memory and
	// compute are divided among them. A share can have at most the part of
	// [MaxProcesses] that it has of the memory. It must be absent with the strategy
	// [StrategyPlain].
	Processes int `json:"processes,omitempty"` // 1 to [MaxProcesses]; default: 1
	// Compute is the compute of a share whose request names none: in proportion to its
	// memory, or without a limit. It must be absent with the strategy
	// [StrategyPlain].
	Compute ComputeMode `json:"compute,omitempty"` // [ComputeProportional], [ComputeBurst]; default: [ComputeProportional]
	// Containers is the number of containers that use the share at a time. If the
	// driver limits memory (the attribute memoryEnforcement is "driver"), the share's
	// memory is divided among them, and one more container does not start.
	Containers int `json:"containers,omitempty"` // 1 to [MaxContainers]; default: 1
	// Require is the least enforcement of the share: a claim is refused on a node that
	// limits the memory, or the compute of an MPS share, less strictly. Compute is
	// never limited more strictly than by [EnforcementDaemon].
	Require Enforcement `json:"require,omitempty"` // [EnforcementDriver], [EnforcementDaemon], [EnforcementCooperative]; default: any
}

// MaxContainers is how many containers can use a share at a time.
const MaxContainers = 64

// MaxProcesses is how many processes can use the shares of a GPU at a time: as many
// as CUDA's Multi-Process Service admits.
const MaxProcesses = 48

// Sharing says how the users of one claim share its devices.
type Sharing struct {
	// Strategy is how the users of the claim share its devices. It must be set.
	Strategy Strategy `json:"strategy,omitempty"` // [StrategyTimeSlicing], [StrategyMPS]
	// TimeSlicing is set if and only if Strategy is TimeSlicing.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS is set if and only if Strategy is MPS.
	MPS *MPS `json:"mps,omitempty"`
}

// Strategy is a way to share a device.
type Strategy string

// The strategies. [Sharing] takes TimeSlicing and MPS, [ShareConfig] takes MPS and
// Plain.
const (
	// StrategyTimeSlicing lets processes share the GPU in time. Nothing limits
	// their memory.
	StrategyTimeSlicing Strategy = "TimeSlicing"
	// StrategyMPS lets processes run at the same time. An MPS daemon limits each.
	StrategyMPS Strategy = "MPS"
	// StrategyPlain lets processes share the GPU in time. The scheduler counts their
	// memory, and nothing limits it.
	StrategyPlain Strategy = "Plain"
)

// TimeSlicing configures the strategy TimeSlicing.
type TimeSlicing struct {
	// Interval is the length of a time slice. MIG devices have only
	// [IntervalDefault].
	Interval Interval `json:"interval,omitempty"` // [IntervalDefault], [IntervalShort], [IntervalMedium], [IntervalLong]; default: [IntervalDefault]
}

// Interval is the length of a time slice: how long a process computes before the
// next one does.
type Interval string

// The intervals.
const (
	IntervalDefault Interval = "Default"
	IntervalShort   Interval = "Short"
	IntervalMedium  Interval = "Medium"
	IntervalLong    Interval = "Long"
)

// Intervals returns all intervals.
func Intervals() []Interval {
	return []Interval{IntervalDefault, IntervalShort, IntervalMedium, IntervalLong}
}

// MPS configures the strategy MPS. Every process of every container that uses the
// claim is a client of one MPS daemon.
type MPS struct {
	// ThreadPercentage is the part of the SMs that each process can use, in percent.
	ThreadPercentage *int `json:"threadPercentage,omitempty"` // 1 to 100; default: no limit
	// MemoryLimit is the memory that each process can use on each device.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"` // whole Mi, such as "10Gi"; default: no limit
	// PerDevice overrides MemoryLimit for some devices, each of them once.
	PerDevice []DeviceLimit `json:"perDevice,omitempty"`
	// MultiUser declares that the processes run as several users. It changes
	// nothing: the agent refuses the claim unless the supervisor has --multi-user
	// (the chart's "mps.multiUser"), or the MPS daemon has namespaces.
	MultiUser bool `json:"multiUser,omitempty"` // "true", "false"; default: "false"
}

// DeviceLimit is the memory limit of a process on one device.
type DeviceLimit struct {
	// Device is the device of the limit: a device of the request by its index, or any
	// device of the configuration by its UUID. Each device can be named once.
	Device DeviceRef `json:"device"` // an index from 0, or a UUID
	// MemoryLimit is the limit on this device.
	MemoryLimit resource.Quantity `json:"memoryLimit"` // whole Mi, such as "10Gi"
}

// DeviceRef names a device of the request by its index from 0 or by its UUID. A
// UUID begins with "GPU-" or "MIG-". An index can be a number or a string in JSON.
type DeviceRef string

// Index returns the index of the device, if it is named by its index.
func (r DeviceRef) Index() (index int, ok bool) {
	index, err := strconv.Atoi(string(r))
	return index, err == nil
}

// ComputeMode says how much compute a share has if its request names none.
type ComputeMode string

// The compute modes.
const (
	// ComputeProportional is as large a part of the SMs as of the memory.
	ComputeProportional ComputeMode = "Proportional"
	// ComputeBurst means that nothing limits the compute.
	ComputeBurst ComputeMode = "Burst"
)

func (*GpuConfig) isConfig()   {}
func (*MigConfig) isConfig()   {}
func (*ShareConfig) isConfig() {}
