package claim

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// origin is where a wish's configuration is from.
type origin struct {
	// entry is its place, from 1, among the configurations of the allocation; 0
	// where there is none.
	entry int
	// nvidia says that it is written for NVIDIA's driver, by whose rules it
	// applies.
	nvidia bool
}

// configuration decodes every configuration that applies to a wish, those of the
// class before those of the claim, and returns the last one, which wins; nil for
// none. One for NVIDIA's driver that names no request is for the devices of its
// kind.
func (m *Manager) configuration(configs []resourceapi.DeviceAllocationConfiguration, w wish) (last v1alpha1.Config, from origin, err error) {
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for i, c := range configs {
			if c.Source != source || len(resourceclaim.ConfigForResult(configs[i:i+1], w.result)) == 0 || c.Opaque.Driver != m.DriverName {
				continue
			}
			config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			if err != nil {
				return nil, origin{}, fmt.Errorf("configuration (%s): %w %w", source, gpu.ErrInvalid, err)
			}
			nvidia := v1alpha1.ForNVIDIA(c.Opaque.Parameters.Raw)
			if nvidia && len(c.Requests) == 0 && !w.is(v1alpha1.KindOf(config)) {
				continue
			}
			last, from = config, origin{entry: i + 1, nvidia: nvidia}
		}
	}
	return last, from, nil
}

// is reports whether a kind of configuration is for devices like the wish's.
func (w wish) is(configKind string) bool {
	return configKind == w.name.Kind.Configuration().Own
}

// configuredWith reports whether two wishes share what they are configured with:
// those of one request, and by the rules of NVIDIA's driver all GPUs that one
// configuration is for.
func (w wish) configuredWith(other wish) bool {
	if w.origin.nvidia && w.name.Kind == kind.GPU {
		return other.name.Kind == kind.GPU && other.origin == w.origin
	}
	return other.result.Request == w.result.Request
}

// counted gives wishes that are configured together in the order in which an
// index counts them: NVIDIA's driver sorts them by UUID.
func (w wish) counted(together []wish) []wish {
	if !w.origin.nvidia {
		return together
	}
	return slices.SortedFunc(slices.Values(together), func(a, b wish) int { return strings.Compare(a.uuid(), b.uuid()) })
}

// called gives the name of a kind in the words of whoever wrote the wish's
// configuration.
func (w wish) called(configKind string) string {
	switch {
	case w.origin.nvidia && configKind == v1alpha1.KindMigConfig:
		return v1alpha1.KindMigDeviceConfig
	case w.origin.nvidia && configKind == v1alpha1.KindShareConfig:
		return configKind + " of " + v1alpha1.GroupVersion
	default:
		return configKind
	}
}

// limited says in the words of whoever wrote the wish's configuration where in it
// the i-th limit of a device is, and what has the devices that it counts.
func (w wish) limited(i int, device v1alpha1.DeviceRef) (field, counts string) {
	if w.origin.nvidia {
		return fmt.Sprintf("sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[%q]", device), "the configuration is for"
	}
	return fmt.Sprintf("sharing.mps.perDevice[%d].device", i), "the request has"
}

// sharing is the section of that name in the wish's configuration, nil where
// there is none.
func (w wish) sharing() *v1alpha1.Sharing {
	switch c := w.config.(type) {
	case *v1alpha1.GpuConfig:
		return c.Sharing
	case *v1alpha1.MigConfig:
		return c.Sharing
	default:
		return nil
	}
}

// fits reports an error where the configuration is none for what the claim was
// given, and says what is.
func (w wish) fits() error {
	if w.config == nil {
		return nil
	}
	configKind := v1alpha1.KindOf(w.config)
	refuse := func(what, instead string) error {
		return fmt.Errorf("configuration: %w: a %s cannot configure %s; %s", gpu.ErrInvalid, w.called(configKind), what, instead)
	}
	switch {
	case w.name.Kind == kind.Monitor:
		return refuse("the monitoring of GPUs", "remove it, or name in its requests those that it is for")
	case w.name.Kind == kind.TimeSlice:
		if configKind != v1alpha1.KindGpuConfig {
			return refuse("time slices", "write a GpuConfig whose sharing.strategy is TimeSlicing")
		}
		if s := w.sharing(); s != nil && s.Strategy != v1alpha1.StrategyTimeSlicing {
			return fmt.Errorf("configuration: sharing.strategy: %w: %s on time slices, whose strategy is TimeSlicing; for %s ask for a share of a GPU's memory", gpu.ErrInvalid, s.Strategy, s.Strategy)
		}
	case !w.share.Whole:
		if configKind != v1alpha1.KindShareConfig {
			return refuse(fmt.Sprintf("a share (%s of %s memory)", inBytes(w.share.Memory), w.all.String()),
				fmt.Sprintf("write a %s, or remove capacity from the request to have all of the device", w.called(v1alpha1.KindShareConfig)))
		}
	case w.name.Kind == kind.MIG && configKind == v1alpha1.KindGpuConfig:
		return refuse("a MIG device", "write a "+w.called(v1alpha1.KindMigConfig))
	case w.name.Kind == kind.GPU && configKind == v1alpha1.KindMigConfig:
		return refuse("a GPU", "write a GpuConfig")
	}
	return nil
}

// interval is the time slice that the wish wants of its GPU. The default is none
// in particular.
func (w wish) interval() gpu.TimeSlice {
	s := w.sharing()
	if s == nil || s.TimeSlicing == nil || s.TimeSlicing.Interval == v1alpha1.IntervalDefault {
		return ""
	}
	return gpu.TimeSlice(s.TimeSlicing.Interval)
}
