// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// terms returns the terms on which the claim has the device. all are the device requests of
// the claim.
func (in Inputs) terms(d deviceRequest, all []deviceRequest) (share.Terms, error) {
	if s := d.sharing(); s != nil && s.Strategy == v1alpha1.StrategyMPS {
		return in.togetherTerms(d, all, *s.MPS)
	}
	if !d.isShare() {
		return in.aloneTerms(d)
	}
	var t share.Terms
	var err error
	if config := in.shareConfig(d); config.Strategy == v1alpha1.StrategyPlain {
		t, err = in.plainTerms(d, config)
	} else {
		t, err = in.mpsTerms(d, all, config)
	}
	if err == nil {
		err = d.checkRequired(t)
	}
	return t, err
}

// shareConfig returns the configuration of a share. Without one the share is as it was
// published.
func (in Inputs) shareConfig(d deviceRequest) v1alpha1.ShareConfig {
	if config, configured := d.config.(*v1alpha1.ShareConfig); configured {
		return *config
	}
	config := v1alpha1.ShareConfig{Strategy: v1alpha1.StrategyMPS, Processes: 1, Containers: 1, Compute: v1alpha1.ComputeProportional}
	if !d.name.Kind.NeedsMPS() && !in.holdsSharesByMPS(d) {
		config.Strategy = v1alpha1.StrategyPlain
	}
	return config
}

// aloneTerms returns the terms of a claim that has the device to itself, or its slots.
func (in Inputs) aloneTerms(d deviceRequest) (share.Terms, error) {
	t := share.Terms{Share: d.amount(), Slots: d.share.Slots, TimeSlice: d.timeSlice()}
	switch {
	case t.TimeSlice == "":
	case !in.TimeSlicing:
		return t, fmt.Errorf("sharing.timeSlicing.interval: %w: this node changes no time slices; leave the interval out", gpu.ErrNotSupported)
	case d.name.IsPartition():
		return t, fmt.Errorf("sharing.timeSlicing.interval: %w: the hardware has no time slices for MIG devices; leave the interval out", gpu.ErrInvalid)
	}
	var err error
	t.Limit, err = d.limit(1)
	return t, err
}

// plainTerms returns the terms of a share whose compute is not limited.
func (in Inputs) plainTerms(d deviceRequest, config v1alpha1.ShareConfig) (share.Terms, error) {
	if err := in.checkPlain(d); err != nil {
		return share.Terms{}, err
	}
	limit, err := d.limit(config.Containers)
	return share.Terms{Share: d.amount(), Limit: limit, Require: config.Require}, err
}

// amount returns what the claim takes of the device, nil for all of it.
func (d deviceRequest) amount() *share.Amount {
	if d.share.Whole && (d.share.Slots == 0 || d.share.Memory == 0) {
		return nil
	}
	return &share.Amount{Memory: d.share.Memory, Compute: d.share.Compute}
}

// checkPlain returns an error for a plain share of a GPU that MPS shares make
// exclusive. The GPU is in EXCLUSIVE_PROCESS while it has MPS shares, and the
// processes of the plain share could not use it then. The plain share is refused even
// if the GPU has none now, because the scheduler may allocate some at any time. MIG
// devices have no compute mode of this kind.
func (in Inputs) checkPlain(d deviceRequest) error {
	if !in.ExclusiveCompute || d.name.IsPartition() || d.share.Whole || !in.holdsSharesByMPS(d) {
		return nil
	}
	return fmt.Errorf("strategy Plain: %w: the node keeps its GPUs in %s while they have MPS shares (--exclusive-compute), and other processes cannot use them then; see %s",
		gpu.ErrNotSupported, gpu.ComputeModeExclusiveProcess, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
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

// holdsSharesByMPS reports whether the node holds shares of the device's GPU to their limits by MPS.
func (in Inputs) holdsSharesByMPS(d deviceRequest) bool { return in.MPS && d.gpu.MPSLimits() }

// sharingOn returns how the processes of a device share its GPU on the terms.
func (d deviceRequest) sharingOn(t share.Terms) use.Sharing {
	s := d.sharing()
	switch {
	case t.MPS != nil:
		return use.ByMPS
	case d.name.Kind.Takes() == kind.TakesSlots, s != nil && s.Strategy == v1alpha1.StrategyTimeSlicing:
		return use.TimeSlices
	case d.isShare():
		return use.Plain
	default:
		return use.Alone
	}
}
