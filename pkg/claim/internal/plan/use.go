// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// use returns the allocated device with how it is used. all are the device requests of the
// claim.
func (in Inputs) use(d deviceRequest, all []deviceRequest) (Device, error) {
	device := d.device
	device.UUID, device.Slots, device.Require = d.gpu.UUID, d.share.Slots, d.required()
	if !d.share.Whole || d.share.Slots > 0 && d.share.Memory > 0 {
		device.Share = &share.Amount{Memory: d.share.Memory, Compute: d.share.Compute}
	}
	if device.TimeSlice = d.timeSlice(); device.TimeSlice != "" {
		switch {
		case !in.TimeSlicing:
			return device, fmt.Errorf("sharing.timeSlicing.interval: %w: this node changes no time slices; leave the interval out", gpu.ErrNotSupported)
		case d.name.IsPartition():
			return device, fmt.Errorf("sharing.timeSlicing.interval: %w: the hardware has no time slices for MIG devices; leave the interval out", gpu.ErrInvalid)
		}
	}
	var err error
	switch s := d.sharing(); {
	case s != nil && s.Strategy == v1alpha1.StrategyMPS:
		err = in.useTogether(&device, d, all, *s.MPS)
	case d.isShare():
		err = in.useShare(&device, d, all)
	}
	if err == nil {
		err = in.limit(&device, d)
	}
	if err == nil {
		err = d.checkRequired(device)
	}
	return device, err
}

// useShare makes the processes of a share clients of its device's daemon. It does
// not for a plain share.
func (in Inputs) useShare(device *Device, d deviceRequest, all []deviceRequest) error {
	config, configured := d.config.(*v1alpha1.ShareConfig)
	if !configured {
		if !d.name.Kind.NeedsMPS() && (!in.MPS || !d.gpu.MPSLimits()) {
			return nil // plain, as it was published
		}
		config = &v1alpha1.ShareConfig{Strategy: v1alpha1.StrategyMPS, Processes: 1, Compute: v1alpha1.ComputeProportional}
	}
	if config.Strategy == v1alpha1.StrategyPlain {
		return in.checkPlain(d)
	}
	if err := in.checkUse(d, use.ByMPS, use.NoMPS); err != nil {
		return err
	}
	if n := len(d.companions(all)); n > 1 {
		if units := d.name.Kind.Units().Capacity; d.name.Kind.NeedsMPS() {
			return fmt.Errorf("%w: %d %s in one request, and a container can be client of one MPS daemon only; ask for one, or for more of one GPU in a claim with capacity: {requests: {%s: %d}}", gpu.ErrInvalid, n, units, units, n)
		}
		return fmt.Errorf("%w: %d MPS shares for one request, and a container can be client of one MPS daemon only; see %s", gpu.ErrInvalid, n, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	if err := d.checkProcesses(config.Processes); err != nil {
		return err
	}
	limits := limitsOf(shareSize{
		memory: d.share.Memory, all: uint64(d.all.Value()), compute: d.share.Compute, burst: config.Compute == v1alpha1.ComputeBurst,
		processes: config.Processes,
	})
	limits.Daemon = d.name.MPSDaemon()
	if d.hasNamespaces() {
		limits.Namespace = namespaceName(d.claim, *device)
	}
	device.MPS = &limits
	device.Exclusive = in.ExclusiveCompute && device.Share != nil && !d.name.IsPartition()
	return nil
}

// checkPlain returns an error for a plain share of a GPU that MPS shares make
// exclusive. The GPU is in EXCLUSIVE_PROCESS while it has MPS shares, and the
// processes of the plain share could not use it then. The plain share is refused even
// if the GPU has none now, because the scheduler may allocate some at any time. MIG
// devices have no compute mode of this kind.
func (in Inputs) checkPlain(d deviceRequest) error {
	if !in.ExclusiveCompute || d.name.IsPartition() || d.share.Whole || !in.MPS || !d.gpu.MPSLimits() {
		return nil
	}
	return fmt.Errorf("strategy Plain: %w: the node keeps its GPUs in %s while they have MPS shares (--exclusive-compute), and other processes cannot use them then; see %s",
		gpu.ErrNotSupported, gpu.ComputeModeExclusiveProcess, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
}

// checkProcesses returns an error if a share declares more processes than its part of
// the device's MPS clients: it would take those of other shares, which the scheduler
// allocates by their memory.
func (d deviceRequest) checkProcesses(declared int) error {
	all, admitted := uint64(d.all.Value()), maxClients(d.gpu.GPU, d.name)
	most := gpu.MPSClientsOfShare(admitted, d.share.Memory, all)
	if declared <= most {
		return nil
	}
	remedy := fmt.Sprintf("declare %d in the ShareConfig", most)
	if declared <= admitted {
		steps := (uint64(declared)*all/uint64(admitted) + catalog.MemoryStep - 1) / catalog.MemoryStep
		remedy += fmt.Sprintf(", or ask for %s of memory", inBytes(min(all, steps*catalog.MemoryStep)))
	}
	return fmt.Errorf("processes: %w: a share of %s has %d of the %d processes that MPS admits at a time to the device with %s, and the ShareConfig declares %d; %s",
		gpu.ErrInvalid, inBytes(d.share.Memory), most, admitted, d.all.String(), declared, remedy)
}

// useTogether makes the processes of whole devices that are configured together clients
// of one daemon.
func (in Inputs) useTogether(device *Device, d deviceRequest, all []deviceRequest, config v1alpha1.MPS) error {
	if err := in.checkUse(d, use.ByMPS, use.NoMPS); err != nil {
		return err
	}
	together := d.companions(all)
	// A namespace has one memory limit for all of its devices.
	namespace := len(config.PerDevice) == 0 && !slices.ContainsFunc(together, func(d deviceRequest) bool { return !d.hasNamespaces() })
	if config.MultiUser && !namespace {
		if err := in.checkMultiUser(); err != nil {
			return err
		}
	}
	if len(together) > 1 && d.name.IsPartition() {
		return fmt.Errorf("sharing.strategy: %w: MPS for %d devices in one request, and a CUDA process uses one MIG device; make a request of each", gpu.ErrInvalid, len(together))
	}
	device.MPS = &share.Client{Daemon: together[0].name}
	if namespace {
		device.MPS.Namespace = namespaceName(d.claim, *device)
	}
	if config.ThreadPercentage != nil {
		device.MPS.ThreadPercentage = *config.ThreadPercentage
	}
	if config.MemoryLimit != nil {
		device.MPS.MemoryLimit = uint64(config.MemoryLimit.Value())
	}
	counted := d.counted(together)
	entries := make(map[string]int, len(config.PerDevice)) // by the device that they name
	for i, limit := range config.PerDevice {
		field, counts := d.limitField(i, limit.Device)
		named, err := d.named(limit.Device, counted, all)
		if err != nil {
			return fmt.Errorf("%s: %w; %s %d devices, counted from 0", field, err, counts, len(counted))
		}
		if i, twice := entries[named]; twice {
			before, _ := d.limitField(i, config.PerDevice[i].Device)
			return fmt.Errorf("%s: %w: %s names the device of %s again; leave one of the two out", field, gpu.ErrInvalid, limit.Device, before)
		}
		entries[named] = i
		if named == d.result.Device {
			device.MPS.MemoryLimit = uint64(limit.MemoryLimit.Value())
		}
	}
	if device.MPS.MemoryLimit > uint64(d.all.Value()) {
		return fmt.Errorf("sharing.mps: %w: a memory limit of %s for a process, and the device has %s", gpu.ErrInvalid, inBytes(device.MPS.MemoryLimit), d.all.String())
	}
	return nil
}

// named returns the device that the configuration names: by its index among the
// counted devices, or by its UUID among all devices of the configuration.
func (d deviceRequest) named(ref v1alpha1.DeviceRef, counted, all []deviceRequest) (string, error) {
	if index, numbered := ref.Index(); numbered {
		if index < 0 || index >= len(counted) {
			return "", fmt.Errorf("%w: %s", gpu.ErrInvalid, ref)
		}
		return counted[index].result.Device, nil
	}
	for _, other := range all {
		if other.origin == d.origin && other.uuid() == string(ref) {
			return other.result.Device, nil
		}
	}
	return "", fmt.Errorf("%w: %s is none of the devices that this configuration is for; name them by their index", gpu.ErrInvalid, ref)
}

// checkMultiUser returns an error if MPS serves one user at a time.
func (in Inputs) checkMultiUser() error {
	if in.MultiUserErr != nil {
		return fmt.Errorf("multiUser: %w", in.MultiUserErr)
	}
	if !in.MultiUser {
		return fmt.Errorf("multiUser: %w: MPS on this node serves one user at a time; leave it out, or ask the administrator for mps.multiUser: true in the chart's values (--multi-user of gpu-mps-supervisor)", gpu.ErrNotSupported)
	}
	return nil
}

// checkUse returns an error if the GPU does not admit the sharing for one of the
// aspects.
func (in Inputs) checkUse(d deviceRequest, sharing use.Sharing, aspects ...use.Aspect) error {
	for _, problem := range use.Check(d.gpu, in.MPS, d.name, sharing) {
		switch {
		case !slices.Contains(aspects, problem.Aspect):
		case problem.Pod != "":
			return Refuse(problem.Err, "pod", problem.Pod)
		default:
			return problem.Err
		}
	}
	return nil
}

// sharingOf returns how the processes of a device share its GPU.
func (d deviceRequest) sharingOf(device Device) use.Sharing {
	s := d.sharing()
	switch {
	case device.MPS != nil:
		return use.ByMPS
	case d.name.Kind.Takes() == kind.TakesSlots, s != nil && s.Strategy == v1alpha1.StrategyTimeSlicing:
		return use.TimeSlices
	case d.isShare():
		return use.Plain
	default:
		return use.Alone
	}
}
