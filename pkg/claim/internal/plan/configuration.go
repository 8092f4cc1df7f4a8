// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// origin is the source of a configuration.
type origin struct {
	// entry is its place, from 1, among the configurations of the allocation; 0 if
	// there is none.
	entry int
	// nvidia is set if the configuration is written for NVIDIA's driver. The rules of
	// that driver then decide which devices it applies to.
	nvidia bool
}

// configuration is a configuration of the allocation for this driver.
type configuration struct {
	resourceapi.DeviceAllocationConfiguration
	origin origin
	config v1alpha1.Config
	err    error // why config cannot be decoded
}

// configurations decodes the configurations for this driver: those of classes before those
// of the claim, which override them.
func (s Settings) configurations(allocated []resourceapi.DeviceAllocationConfiguration) []configuration {
	var all []configuration
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for i, c := range allocated {
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != s.DriverName {
				continue
			}
			decoded := configuration{DeviceAllocationConfiguration: c, origin: origin{entry: i + 1, nvidia: v1alpha1.ForNVIDIA(c.Opaque.Parameters.Raw)}}
			decoded.config, decoded.err = v1alpha1.Decode(c.Opaque.Parameters.Raw)
			all = append(all, decoded)
		}
	}
	return all
}

// configure adds the configurations to the allocation.
func (a *Allocation) configure(all []configuration) {
	for _, c := range all {
		sharing := deviceRequest{config: c.config}.sharing()
		a.MultiUser = a.MultiUser || sharing != nil && sharing.MPS != nil && sharing.MPS.MultiUser
	}
	for i, d := range a.requests {
		a.requests[i] = d.configured(all)
	}
}

// configured returns the device request with the last of the configurations that apply to
// it. A configuration for NVIDIA's driver that names no request is for the devices of its
// kind.
func (d deviceRequest) configured(all []configuration) deviceRequest {
	for _, c := range all {
		switch {
		case len(resourceclaim.ConfigForResult([]resourceapi.DeviceAllocationConfiguration{c.DeviceAllocationConfiguration}, d.result)) == 0:
		case c.err != nil:
			d.configErr = fmt.Errorf("configuration (%s): %w %w", c.Source, gpu.ErrInvalid, c.err)
			return d
		case c.origin.nvidia && len(c.Requests) == 0 && !d.takes(v1alpha1.KindOf(c.config)):
		default:
			d.config, d.origin = c.config, c.origin
		}
	}
	return d
}

// takes reports whether a kind of configuration is for devices of this kind.
func (d deviceRequest) takes(config string) bool {
	return config == d.name.Kind.Configuration().Own
}

// isConfiguredWith reports whether two device requests share their configuration:
// those of one request, and by the rules of NVIDIA's driver all GPUs of one
// configuration.
func (d deviceRequest) isConfiguredWith(other deviceRequest) bool {
	if d.origin.nvidia && d.isUndivided() {
		return other.isUndivided() && other.origin == d.origin
	}
	return other.result.Request == d.result.Request
}

// counted returns device requests that are configured together in the order in which
// an index counts them: NVIDIA's driver sorts them by UUID.
func (d deviceRequest) counted(together []deviceRequest) []deviceRequest {
	if !d.origin.nvidia {
		return together
	}
	return slices.SortedFunc(slices.Values(together), func(a, b deviceRequest) int { return strings.Compare(a.uuid(), b.uuid()) })
}

// kindName returns the name of a kind in the vocabulary of the configuration: NVIDIA's
// driver has other names.
func (d deviceRequest) kindName(config string) string {
	switch {
	case d.origin.nvidia && config == v1alpha1.KindMigConfig:
		return v1alpha1.KindMigDeviceConfig
	case d.origin.nvidia && config == v1alpha1.KindShareConfig:
		return config + " of " + v1alpha1.GroupVersion
	default:
		return config
	}
}

// limitField returns the field of the i-th limit of a device in the vocabulary of the
// configuration. It also returns the owner of the devices that the field counts.
func (d deviceRequest) limitField(i int, device v1alpha1.DeviceRef) (field, counts string) {
	if d.origin.nvidia {
		return fmt.Sprintf("sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[%q]", device), "the configuration is for"
	}
	return fmt.Sprintf("sharing.mps.perDevice[%d].device", i), "the request has"
}

// sharing returns the section of that name in the configuration, nil if there is none.
func (d deviceRequest) sharing() *v1alpha1.Sharing {
	switch c := d.config.(type) {
	case *v1alpha1.GpuConfig:
		return c.Sharing
	case *v1alpha1.MigConfig:
		return c.Sharing
	default:
		return nil
	}
}

// strategy returns the strategy in the configuration and its field; "" if there is none.
func (d deviceRequest) strategy() (field string, strategy v1alpha1.Strategy) {
	if share, ok := d.config.(*v1alpha1.ShareConfig); ok {
		return "strategy", share.Strategy
	}
	if s := d.sharing(); s != nil {
		return "sharing.strategy", s.Strategy
	}
	return "", ""
}

// checkConfiguration returns an error if the configuration is not for the kind of
// device that was allocated.
func (d deviceRequest) checkConfiguration() error {
	if d.config == nil {
		return nil
	}
	config, accepts := v1alpha1.KindOf(d.config), d.name.Kind.Configuration()
	refuse := func(what, instead string) error {
		return fmt.Errorf("configuration: %w: a %s cannot configure %s; %s", gpu.ErrInvalid, d.kindName(config), what, instead)
	}
	switch field, strategy := d.strategy(); {
	case accepts.Own == "":
		return refuse(accepts.Noun, accepts.Remedy)
	case !d.name.Kind.Accepts(config, !d.share.Whole) && !d.share.Whole && !d.name.Kind.NeedsMPS():
		return refuse(fmt.Sprintf("a share (%s of %s memory)", inBytes(d.share.Memory), d.all.String()),
			fmt.Sprintf("write a %s, or remove capacity from the request to have all of the device", d.kindName(v1alpha1.KindShareConfig)))
	case !d.name.Kind.Accepts(config, !d.share.Whole):
		return refuse(accepts.Noun, "write a "+d.kindName(accepts.Own)+accepts.Remedy)
	case accepts.Strategy != "" && strategy != "" && strategy != accepts.Strategy:
		return fmt.Errorf("configuration: %s: %w: %s on %s, whose strategy is %s; for %s ask for a share of a GPU's memory", field, gpu.ErrInvalid, strategy, accepts.Noun, accepts.Strategy, strategy)
	}
	return nil
}

// timeSlice returns the time slice that the configuration asks for. The default asks
// for none in particular.
func (d deviceRequest) timeSlice() gpu.TimeSlice {
	s := d.sharing()
	if s == nil || s.TimeSlicing == nil || s.TimeSlicing.Interval == v1alpha1.IntervalDefault {
		return ""
	}
	return gpu.TimeSlice(s.TimeSlicing.Interval)
}
