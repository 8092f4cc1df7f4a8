// SPDX-License-Identifier: Apache-2.0

package use

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Sharing is how the processes of a device share its GPU.
type Sharing string

const (
	// Alone means that one claim has the device without configured sharing.
	Alone Sharing = "alone"
	// ByMPS means that the processes are clients of an MPS daemon.
	ByMPS Sharing = "mps"
	// Plain means that processes of several claims use the device without MPS.
	Plain Sharing = "plain"
	// TimeSlices means that the processes take time slices of the GPU.
	TimeSlices Sharing = "timeslices"
)

// Conditions are what the agent knows of a GPU besides the report of the hardware.
type Conditions struct {
	// Cause is why a GPU has a fault or does not answer, such as "xid-79": see package cause. A
	// GPU with a Fault is unhealthy without it too.
	Cause string
	// Fault is the reason why new claims must not get the GPU although it may answer.
	// It also says how an administrator repairs the GPU. It is empty for a healthy GPU.
	Fault string
	// MPSNamespaces reports whether MPS daemons on the GPU have namespaces: MPS
	// protocol 3.
	MPSNamespaces bool
	// Cordoned is set if an administrator has taken the GPU out of use.
	Cordoned bool
	// External are the external allocations of the node, of this GPU or of others.
	External []gpu.ExternalAllocation
}

// GPU is a GPU and its conditions.
type GPU struct {
	gpu.GPU
	Conditions
}

// Aspect is the property of a GPU or node for which it does not admit a use.
type Aspect string

const (
	// Unhealthy is a fault of the GPU.
	Unhealthy Aspect = "health"
	// ComputeMode is the administrator's choice of which processes may use the GPU.
	ComputeMode Aspect = "compute mode"
	// MIGMode is the MIG mode of a GPU that is wanted whole.
	MIGMode Aspect = "MIG mode"
	// NoMPS is a node without MPS daemons, or a GPU on which MPS has no limits.
	NoMPS Aspect = "MPS"
	// External is an external allocation of the device or of a part of it.
	External Aspect = "external allocation"
)

// Problem is one reason why a GPU does not admit a use.
type Problem struct {
	Aspect Aspect
	// Err says what the problem is and what to do about it. It wraps a sentinel
	// error of package gpu.
	Err error
	// TaintKey and TaintValue are the taint that keeps new claims from the device.
	// They are empty if the problem does not depend on the device alone.
	TaintKey, TaintValue string
	// Pod ("namespace/name") has the device if the aspect is [External]. It is for
	// logs: users must not see the pods of others.
	Pod string
}

// Check returns every reason why a GPU does not admit the sharing of a device, in a fixed order.
// It returns nil if the GPU admits it. A device that stands for all GPUs of the
// node is always admitted. mps reports whether the node runs MPS daemons.
func Check(g GPU, mps bool, device kind.Name, sharing Sharing) []Problem {
	var problems []Problem
	add := func(a Aspect, taint, value string, err error) {
		problems = append(problems, Problem{Aspect: a, Err: err, TaintKey: taint, TaintValue: value})
	}
	if device.Kind.Scope() == kind.ScopeNode {
		return nil
	}
	if g.Fault != "" || g.Cause != "" {
		add(Unhealthy, v1alpha1.TaintUnhealthy, g.Cause, fmt.Errorf("%w: %s", gpu.ErrUnhealthy, g.Fault))
	}
	if g.ComputeMode == gpu.ComputeModeProhibited {
		add(ComputeMode, v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintProhibited,
			modeProblem(g, "in which no process can use it", ""))
	}
	if g.MIG.Enabled && device.IsWholeGPU() {
		add(MIGMode, v1alpha1.TaintMIGMode, v1alpha1.MIGModeTaintEnabled,
			fmt.Errorf("%w as a whole GPU: an administrator has switched it to MIG mode; switch it back with nvidia-smi -i %s -mig 0 or cordon the node", gpu.ErrNotSupported, g.Address))
	}
	if g.ComputeMode == gpu.ComputeModeExclusiveProcess {
		switch sharing {
		case Alone, ByMPS:
		case Plain:
			add(ComputeMode, v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintExclusive,
				modeProblem(g, "in which it is used by one process at a time, and several cannot share it without MPS", ", or the configuration says MPS"))
		case TimeSlices:
			add(ComputeMode, v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintExclusive,
				modeProblem(g, "in which it is used by one process at a time, and several cannot share it by time slices", ""))
		}
	}
	if sharing == ByMPS && !mps {
		add(NoMPS, "", "", fmt.Errorf("strategy MPS: %w: no MPS daemons run on this node; see %s", gpu.ErrNotSupported, gpu.Page("docs/user/events.md#when-a-share-does-not-start")))
	} else if sharing == ByMPS && !g.MPSLimits() {
		add(NoMPS, "", "", fmt.Errorf("strategy MPS: %w: the GPU has compute capability %d.%d, and MPS limits its clients from 7.0 (Volta) on; a ShareConfig with the strategy Plain shares it without limits",
			gpu.ErrNotSupported, g.ComputeCapability.Major, g.ComputeCapability.Minor))
	}
	if pod := g.ExternalHolder(device); pod != "" {
		add(External, v1alpha1.TaintInUse, v1alpha1.InUseTaintDevicePlugin,
			fmt.Errorf("%w: a device plugin of this node has given it, or what it is part of, to another pod; it is free when that pod has ended", gpu.ErrInUse))
		problems[len(problems)-1].Pod = pod
	}
	return problems
}

// modeProblem returns the error for a compute mode that an administrator has set: the
// driver does not change it.
func modeProblem(g GPU, meaning, otherwise string) error {
	return fmt.Errorf("%w: the compute mode of the GPU is %s, %s; an administrator changes it with nvidia-smi -i %s -c DEFAULT%s",
		gpu.ErrNotSupported, g.ComputeMode, meaning, g.Address, otherwise)
}
