package claim

import (
	"context"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// use decides how an allocated device is used, out of what is wished for.
func (m *Manager) use(ctx context.Context, a *allocated, w wish, all []wish) error {
	if !w.share.Whole {
		a.Share = &share{Memory: w.share.Memory, Compute: w.share.Compute}
	}
	if a.TimeSlice = w.interval(); a.TimeSlice != "" {
		switch {
		case m.TimeSlicing == nil:
			return fmt.Errorf("sharing.timeSlicing.interval: %w: this node changes no time slices; leave the interval out", gpu.ErrNotSupported)
		case w.name.Kind == kind.MIG:
			return fmt.Errorf("sharing.timeSlicing.interval: %w: the hardware has no time slices for MIG devices; leave the interval out", gpu.ErrInvalid)
		}
	}
	switch s := w.sharing(); {
	case s != nil && s.Strategy == v1alpha1.StrategyMPS:
		return m.useTogether(ctx, a, w, all, *s.MPS)
	case w.isShare():
		return m.useShare(a, w, all)
	}
	return nil
}

// isShare reports whether the wish is for a share, be it one of everything.
func (w wish) isShare() bool {
	_, configured := w.config.(*v1alpha1.ShareConfig)
	return configured || !w.share.Whole
}

// useShare makes those who use a share clients of its device's daemon, unless it
// is a plain one.
func (m *Manager) useShare(a *allocated, w wish, all []wish) error {
	config, configured := w.config.(*v1alpha1.ShareConfig)
	if !configured {
		if m.MPS == nil || !w.gpu.MPSLimits() {
			return nil // plain, as it was published
		}
		config = &v1alpha1.ShareConfig{Strategy: v1alpha1.StrategyMPS, Processes: 1, Compute: v1alpha1.ComputeProportional}
	}
	if config.Strategy == v1alpha1.StrategyPlain {
		return nil
	}
	if err := m.canMPS(w); err != nil {
		return err
	}
	if n := len(w.companions(all)); n > 1 {
		return fmt.Errorf("%w: %d MPS shares for one request, and a container can be client of one MPS daemon only; make a request of each and let each container name the one that is for it, or say Plain in a ShareConfig", gpu.ErrInvalid, n)
	}
	if err := w.checkProcesses(config.Processes); err != nil {
		return err
	}
	limits, err := limitsOf(shareSize{
		memory: w.share.Memory, all: uint64(w.all.Value()), compute: w.share.Compute, burst: config.Compute == v1alpha1.ComputeBurst,
		processes: config.Processes, context: m.ContextMemory,
	})
	if err != nil {
		return err
	}
	limits.Daemon = a.Device
	a.MPS = &limits
	return nil
}

// checkProcesses returns an error if a share declares more processes than its part
// of the clients that MPS admits to the device: it would take those of other shares,
// which the scheduler gives away by their memory.
func (w wish) checkProcesses(declared int) error {
	all, admitted := uint64(w.all.Value()), clientsOf(w.gpu, w.name)
	most := gpu.MPSClientsOfShare(admitted, w.share.Memory, all)
	if declared <= most {
		return nil
	}
	remedy := fmt.Sprintf("declare %d in the ShareConfig", most)
	if declared <= admitted {
		steps := (uint64(declared)*all/uint64(admitted) + catalog.MemoryStep - 1) / catalog.MemoryStep
		remedy += fmt.Sprintf(", or ask for %s of memory", inBytes(min(all, steps*catalog.MemoryStep)))
	}
	return fmt.Errorf("processes: %w: a share of %s has %d of the %d processes that MPS admits at a time to the device with %s, and the ShareConfig declares %d; %s",
		gpu.ErrInvalid, inBytes(w.share.Memory), most, admitted, w.all.String(), declared, remedy)
}

// useTogether makes those who use whole devices that are configured together
// clients of one daemon.
func (m *Manager) useTogether(ctx context.Context, a *allocated, w wish, all []wish, config v1alpha1.MPS) error {
	if err := m.canMPS(w); err != nil {
		return err
	}
	if config.MultiUser {
		if err := m.servesAll(ctx); err != nil {
			return err
		}
	}
	together := w.companions(all)
	if len(together) > 1 && w.name.Kind == kind.MIG {
		return fmt.Errorf("sharing.strategy: %w: MPS for %d devices in one request, and a CUDA process uses one MIG device; make a request of each", gpu.ErrInvalid, len(together))
	}
	a.MPS = &client{Daemon: together[0].result.Device}
	if config.ThreadPercentage != nil {
		a.MPS.ThreadPercentage = *config.ThreadPercentage
	}
	if config.MemoryLimit != nil {
		a.MPS.MemoryLimit = uint64(config.MemoryLimit.Value())
	}
	counted := w.counted(together)
	entries := make(map[string]int, len(config.PerDevice)) // by the device that they name
	for i, limit := range config.PerDevice {
		field, counts := w.limited(i, limit.Device)
		device, err := w.named(limit.Device, counted, all)
		if err != nil {
			return fmt.Errorf("%s: %w; %s %d devices, counted from 0", field, err, counts, len(counted))
		}
		if i, twice := entries[device]; twice {
			before, _ := w.limited(i, config.PerDevice[i].Device)
			return fmt.Errorf("%s: %w: %s names the device of %s again; leave one of the two out", field, gpu.ErrInvalid, limit.Device, before)
		}
		entries[device] = i
		if device == w.result.Device {
			a.MPS.MemoryLimit = uint64(limit.MemoryLimit.Value())
		}
	}
	if a.MPS.MemoryLimit > uint64(w.all.Value()) {
		return fmt.Errorf("sharing.mps: %w: a memory limit of %s for a process, and the device has %s", gpu.ErrInvalid, inBytes(a.MPS.MemoryLimit), w.all.String())
	}
	return nil
}

// named gives the device that the wish's configuration names: by its index among
// those that are counted, or by its UUID among all that it is for.
func (w wish) named(ref v1alpha1.DeviceRef, counted, all []wish) (string, error) {
	if index, numbered := ref.Index(); numbered {
		if index < 0 || index >= len(counted) {
			return "", fmt.Errorf("%w: %s", gpu.ErrInvalid, ref)
		}
		return counted[index].result.Device, nil
	}
	for _, other := range all {
		if other.origin == w.origin && other.uuid() == string(ref) {
			return other.result.Device, nil
		}
	}
	return "", fmt.Errorf("%w: %s is none of the devices that this configuration is for; name them by their index", gpu.ErrInvalid, ref)
}

// companions are the wishes that share their configuration, in their order.
func (w wish) companions(all []wish) []wish {
	var same []wish
	for _, other := range all {
		if w.configuredWith(other) {
			same = append(same, other)
		}
	}
	return same
}

// uuid of the device; "" for a MIG device that is not made yet.
func (w wish) uuid() string {
	if w.name.Kind != kind.MIG {
		return w.gpu.UUID
	}
	if there := partitionsAt(w.gpu.MIG, w.name); len(there) == 1 {
		return there[0].UUID
	}
	return ""
}

// servesAll reports an error where MPS serves one user at a time.
func (m *Manager) servesAll(ctx context.Context) error {
	all, err := m.MPS.MultiUser(ctx)
	if err != nil {
		return fmt.Errorf("multiUser: %w", err)
	}
	if !all {
		return fmt.Errorf("multiUser: %w: MPS on this node serves one user at a time; leave it out, or ask the administrator for mps.multiUser: true in the chart's values (--multi-user of gpu-mps-supervisor)", gpu.ErrNotSupported)
	}
	return nil
}

// canMPS reports an error where nobody can be an MPS client of the device.
func (m *Manager) canMPS(w wish) error {
	switch {
	case m.MPS == nil:
		return fmt.Errorf("strategy MPS: %w: no MPS daemons run on this node; its administrator deploys gpu-mps-supervisor and names its socket with --mps-supervisor, or the configuration says Plain (for shares) or TimeSlicing", gpu.ErrNotSupported)
	case !w.gpu.MPSLimits():
		return fmt.Errorf("strategy MPS: %w: the GPU has compute capability %d.%d, and MPS limits its clients from 7.0 (Volta) on; a ShareConfig with the strategy Plain shares it without limits", gpu.ErrNotSupported, w.gpu.ComputeCapability.Major, w.gpu.ComputeCapability.Minor)
	}
	return nil
}

// mayCompute reports an error where the compute mode, which is the
// administrator's, stands in the way of the use.
func (w wish) mayCompute(a allocated) error {
	reset := fmt.Sprintf("an administrator changes it with nvidia-smi -i %s -c DEFAULT", w.name.Address)
	s := w.sharing()
	inTurns := w.name.Kind == kind.TimeSlice || s != nil && s.Strategy == v1alpha1.StrategyTimeSlicing
	switch mode := w.gpu.ComputeMode; {
	case mode == gpu.ComputeModeProhibited:
		return fmt.Errorf("%w: the compute mode of the GPU is %s, in which no process can use it; %s", gpu.ErrNotSupported, mode, reset)
	case mode == gpu.ComputeModeExclusiveProcess && (inTurns || w.isShare() && a.MPS == nil):
		return fmt.Errorf("%w: the compute mode of the GPU is %s, in which it is used by one process at a time, and several cannot share it without MPS; %s, or the configuration says MPS", gpu.ErrNotSupported, mode, reset)
	}
	return nil
}
