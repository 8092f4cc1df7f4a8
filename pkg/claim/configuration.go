package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// configuration decodes every configuration that applies to a result, those of
// the class before those of the claim, and returns the last one, which wins; nil
// for none.
func (m *Manager) configuration(configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult) (v1alpha1.Config, error) {
	var last v1alpha1.Config
	applying := resourceclaim.ConfigForResult(configs, result)
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, c := range applying {
			if c.Source != source || c.Opaque.Driver != m.DriverName {
				continue
			}
			config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			if err != nil {
				return nil, fmt.Errorf("configuration (%s): %w", source, err)
			}
			last = config
		}
	}
	return last, nil
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
	kind := w.config.Kind()
	refuse := func(what, instead string) error {
		return fmt.Errorf("configuration: %w: a %s cannot configure %s; %s", gpu.ErrInvalid, kind, what, instead)
	}
	switch {
	case w.name.Kind == gpu.KindMonitor:
		return refuse("the monitoring of GPUs", "remove it, or name in its requests those that it is for")
	case w.name.Kind == gpu.KindTimeSlice:
		if kind != v1alpha1.KindGpuConfig {
			return refuse("time slices", "write a GpuConfig whose sharing.strategy is TimeSlicing")
		}
		if s := w.sharing(); s != nil && s.Strategy != v1alpha1.SharingTimeSlicing {
			return fmt.Errorf("configuration: sharing.strategy: %w: %s on time slices, whose strategy is TimeSlicing; for %s ask for a share of a GPU's memory", gpu.ErrInvalid, s.Strategy, s.Strategy)
		}
	case !w.share.Whole:
		if kind != v1alpha1.KindShareConfig {
			return refuse(fmt.Sprintf("a share (%s of %s memory)", inBytes(w.share.Memory), w.all.String()),
				"write a ShareConfig, or remove capacity from the request to have all of the device")
		}
	case w.name.Kind == gpu.KindMIG && kind == v1alpha1.KindGpuConfig:
		return refuse("a MIG device", "write a MigConfig")
	case w.name.Kind == gpu.KindGPU && kind == v1alpha1.KindMigConfig:
		return refuse("a GPU", "write a GpuConfig")
	}
	return nil
}

// interval is the time slice that the wish wants of its GPU. The default is none
// in particular.
func (w wish) interval() gpu.TimeSlice {
	s := w.sharing()
	if s == nil || s.TimeSlicing == nil || s.TimeSlicing.Interval == gpu.TimeSliceDefault {
		return ""
	}
	return s.TimeSlicing.Interval
}
