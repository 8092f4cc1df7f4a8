// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
)

// The configuration of NVIDIA's own driver, from its api/nvidia.com/resource/v1beta1.
const (
	nvidiaGroupVersion  = "resource.nvidia.com/v1beta1"
	nvidiaKindGpuConfig = "GpuConfig"
	// KindMigDeviceConfig is what its MigConfig is called.
	KindMigDeviceConfig = "MigDeviceConfig"
)

// ForNVIDIA reports whether parameters that [Decode] accepts are written for NVIDIA's
// own driver. That driver applies configurations to devices by other rules.
func ForNVIDIA(parameters []byte) bool {
	var meta metav1.TypeMeta
	return strictjson.UnmarshalCaseSensitivePreserveInts(parameters, &meta) == nil && meta.APIVersion == nvidiaGroupVersion
}

// nvidiaUnserved returns the reason if a kind of NVIDIA's driver is not supported.
func nvidiaUnserved(kind string) (why string, known bool) {
	switch kind {
	case "ComputeDomainChannelConfig", "ComputeDomainDaemonConfig", "ImexChannelConfig":
		return "this driver has no compute domains and no IMEX channels; NVIDIA's compute-domain driver serves them under a driver name of its own", true
	case "VfioDeviceConfig":
		return "this driver does not pass GPUs through to virtual machines", true
	default:
		return "", false
	}
}

type nvidiaGpuDocument struct {
	metav1.TypeMeta `json:",inline"`
	Sharing         *struct {
		Strategy          Strategy           `json:"strategy"`
		TimeSlicingConfig *TimeSlicing       `json:"timeSlicingConfig"`
		MpsConfig         *nvidiaMPSDocument `json:"mpsConfig"`
	} `json:"sharing"`
}

func (d *nvidiaGpuDocument) config(p *problems) Config {
	if d.Sharing == nil {
		return newGpuConfig(nil)
	}
	path := field.NewPath("sharing")
	slicing := d.Sharing.TimeSlicingConfig
	sharing := p.strategy(path, d.Sharing.Strategy, "timeSlicingConfig", slicing != nil, "mpsConfig", d.Sharing.MpsConfig != nil)
	if slicing != nil && slicing.Interval != "" && sharing.TimeSlicing != nil {
		sharing.TimeSlicing.Interval = slicing.Interval
		oneOf(p, path.Child("timeSlicingConfig", "interval"), slicing.Interval, Intervals()...)
	}
	d.Sharing.MpsConfig.limit(p, sharing.MPS)
	return newGpuConfig(sharing)
}

type nvidiaMigDocument struct {
	metav1.TypeMeta `json:",inline"`
	Sharing         *struct {
		Strategy  Strategy           `json:"strategy"`
		MpsConfig *nvidiaMPSDocument `json:"mpsConfig"`
	} `json:"sharing"`
}

func (d *nvidiaMigDocument) config(p *problems) Config {
	if d.Sharing == nil {
		return newMigConfig(nil)
	}
	sharing := p.strategy(field.NewPath("sharing"), d.Sharing.Strategy, "", false, "mpsConfig", d.Sharing.MpsConfig != nil)
	d.Sharing.MpsConfig.limit(p, sharing.MPS)
	return newMigConfig(sharing)
}

type nvidiaMPSDocument struct {
	DefaultActiveThreadPercentage     *int                 `json:"defaultActiveThreadPercentage"`
	DefaultPinnedDeviceMemoryLimit    *amount              `json:"defaultPinnedDeviceMemoryLimit"`
	DefaultPerDevicePinnedMemoryLimit map[DeviceRef]amount `json:"defaultPerDevicePinnedMemoryLimit"`
	MultiUser                         bool                 `json:"multiUser"`
}

// limit fills mps in, if both are there.
func (d *nvidiaMPSDocument) limit(p *problems, mps *MPS) {
	if d == nil || mps == nil {
		return
	}
	path := field.NewPath("sharing", "mpsConfig")
	mps.MultiUser = d.MultiUser
	mps.ThreadPercentage = p.nvidiaThreads(path.Child("defaultActiveThreadPercentage"), d.DefaultActiveThreadPercentage)
	if d.DefaultPinnedDeviceMemoryLimit != nil {
		limit := p.flooredMemory(path.Child("defaultPinnedDeviceMemoryLimit"), *d.DefaultPinnedDeviceMemoryLimit)
		mps.MemoryLimit = &limit
	}
	for _, device := range slices.Sorted(maps.Keys(d.DefaultPerDevicePinnedMemoryLimit)) {
		path := path.Child("defaultPerDevicePinnedMemoryLimit").Key(strconv.Quote(short(string(device))))
		p.device(path, device)
		limit := p.flooredMemory(path, d.DefaultPerDevicePinnedMemoryLimit[device])
		mps.PerDevice = append(mps.PerDevice, DeviceLimit{Device: device, MemoryLimit: limit})
	}
}

// nvidiaThreads rejects 0, which NVIDIA's driver passes to MPS: its effect there is
// not documented.
func (p *problems) nvidiaThreads(path *field.Path, percentage *int) *int {
	if percentage != nil && *percentage == 0 {
		p.add(field.Invalid(path, 0, "must be 1 to 100: what MPS makes of 0 is documented nowhere; leave it out for no limit"))
		return nil
	}
	return p.threads(path, percentage)
}

const nvidiaMemoryAllowed = "must be a quantity of at least 1Mi, such as 512Mi, 10Gi or 10e9; of an exponent at most 2 digits are read"

// nvidiaQuantityForm is the form of a Kubernetes quantity that is not negative. It
// excludes long exponents, which are slow to parse.
var nvidiaQuantityForm = regexp.MustCompile(`^\+?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?$`)

// flooredMemory rounds down to whole Mi, as NVIDIA's driver does. So the same
// quantities are valid in both drivers.
func (p *problems) flooredMemory(path *field.Path, a amount) resource.Quantity {
	quantity := a.quantity(nvidiaQuantityForm)
	if quantity.Value() < mebi {
		p.add(field.Invalid(path, short(string(a)), nvidiaMemoryAllowed))
	}
	return *resource.NewQuantity(quantity.Value()/mebi*mebi, resource.BinarySI)
}
