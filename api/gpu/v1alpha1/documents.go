// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The documents differ from the configurations in two points. They distinguish a field
// that is absent from one that is empty, and they hold quantities as text, because the
// decoder of a quantity does not return its path in the document.

type gpuDocument struct {
	metav1.TypeMeta `json:",inline"`
	Sharing         *sharingDocument `json:"sharing"`
}

func (d *gpuDocument) config(p *problems) Config {
	return newGpuConfig(d.Sharing.sharing(p))
}

type migDocument gpuDocument

func (d *migDocument) config(p *problems) Config {
	sharing := d.Sharing.sharing(p)
	if sharing != nil && sharing.TimeSlicing != nil && sharing.TimeSlicing.Interval != IntervalDefault {
		p.add(field.Invalid(field.NewPath("sharing", "timeSlicing", "interval"), short(string(sharing.TimeSlicing.Interval)), "must be Default: the hardware has no other time slice for MIG devices"))
	}
	return newMigConfig(sharing)
}

type shareDocument struct {
	metav1.TypeMeta `json:",inline"`
	Strategy        Strategy    `json:"strategy"`
	Processes       *int        `json:"processes"`
	Compute         ComputeMode `json:"compute"`
	Containers      *int        `json:"containers"`
	Require         Enforcement `json:"require"`
}

func (d *shareDocument) config(p *problems) Config {
	config := &ShareConfig{
		TypeMeta:   typeMeta(KindShareConfig),
		Strategy:   d.Strategy,
		Containers: 1,
		Require:    d.Require,
	}
	if d.Containers != nil {
		config.Containers = *d.Containers
		p.between(field.NewPath("containers"), config.Containers, 1, MaxContainers)
	}
	if d.Require != "" {
		oneOf(p, field.NewPath("require"), d.Require, EnforcementDriver, EnforcementDaemon, EnforcementCooperative)
	}
	switch d.Strategy {
	case StrategyPlain:
		const why = "only with the strategy MPS: a plain share has no MPS clients"
		if d.Processes != nil {
			p.add(field.Forbidden(field.NewPath("processes"), why))
		}
		if d.Compute != "" {
			p.add(field.Forbidden(field.NewPath("compute"), why))
		}
	case StrategyMPS, "":
		config.Strategy, config.Processes, config.Compute = StrategyMPS, 1, ComputeProportional
		if d.Processes != nil {
			config.Processes = *d.Processes
			p.between(field.NewPath("processes"), config.Processes, 1, MaxProcesses)
		}
		if d.Compute != "" {
			config.Compute = d.Compute
			oneOf(p, field.NewPath("compute"), d.Compute, ComputeProportional, ComputeBurst)
		}
	case StrategyTimeSlicing:
		fallthrough
	default:
		oneOf(p, field.NewPath("strategy"), d.Strategy, StrategyMPS, StrategyPlain)
	}
	return config
}

type sharingDocument struct {
	Strategy    Strategy     `json:"strategy"`
	TimeSlicing *TimeSlicing `json:"timeSlicing"`
	MPS         *struct {
		ThreadPercentage *int    `json:"threadPercentage"`
		MemoryLimit      *amount `json:"memoryLimit"`
		PerDevice        []struct {
			Device      DeviceRef `json:"device"`
			MemoryLimit *amount   `json:"memoryLimit"`
		} `json:"perDevice"`
		MultiUser bool `json:"multiUser"`
	} `json:"mps"`
}

func (d *sharingDocument) sharing(p *problems) *Sharing {
	if d == nil {
		return nil
	}
	path := field.NewPath("sharing")
	sharing := p.strategy(path, d.Strategy, "timeSlicing", d.TimeSlicing != nil, "mps", d.MPS != nil)
	if d.TimeSlicing != nil && d.TimeSlicing.Interval != "" && sharing.TimeSlicing != nil {
		sharing.TimeSlicing.Interval = d.TimeSlicing.Interval
		oneOf(p, path.Child("timeSlicing", "interval"), d.TimeSlicing.Interval, Intervals()...)
	}
	if d.MPS == nil || sharing.MPS == nil {
		return sharing
	}
	path = path.Child("mps")
	sharing.MPS.MultiUser = d.MPS.MultiUser
	sharing.MPS.ThreadPercentage = p.threads(path.Child("threadPercentage"), d.MPS.ThreadPercentage)
	if d.MPS.MemoryLimit != nil {
		limit := p.memory(path.Child("memoryLimit"), *d.MPS.MemoryLimit)
		sharing.MPS.MemoryLimit = &limit
	}
	named := map[DeviceRef]bool{}
	for i, one := range d.MPS.PerDevice {
		path := path.Child("perDevice").Index(i)
		limit := DeviceLimit{Device: one.Device}
		p.device(path.Child("device"), one.Device)
		if named[one.Device] {
			p.add(field.Duplicate(path.Child("device"), short(string(one.Device))))
		}
		named[one.Device] = true
		if one.MemoryLimit == nil {
			p.add(field.Required(path.Child("memoryLimit"), memoryAllowed))
		} else {
			limit.MemoryLimit = p.memory(path.Child("memoryLimit"), *one.MemoryLimit)
		}
		sharing.MPS.PerDevice = append(sharing.MPS.PerDevice, limit)
	}
	return sharing
}

func newGpuConfig(sharing *Sharing) *GpuConfig {
	return &GpuConfig{TypeMeta: typeMeta(KindGpuConfig), Sharing: sharing}
}

func newMigConfig(sharing *Sharing) *MigConfig {
	return &MigConfig{TypeMeta: typeMeta(KindMigConfig), Sharing: sharing}
}
