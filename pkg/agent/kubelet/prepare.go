// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. It prepares the claims of
// a call concurrently: they belong to one pod, which starts when the last of them is
// prepared.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(claims))
	inParallel(claims, func(i int, claim *resourceapi.ResourceClaim) { results[i] = p.prepare(ctx, claim) })
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = results[i]
	}
	return byUID, nil
}

func (p *Plugin) prepare(ctx context.Context, object *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KObj(object), "claimUID", object.UID)
	ctx = klog.NewContext(ctx, logger)
	start := p.Clock.Now()
	p.Accounts.Seen(object)
	call := p.Reporter.BeginPrepare(object)
	prepare := p.Claims.Prepare
	if place.IsAgain(ctx) {
		prepare = p.Claims.PrepareAgain
	}
	devices, err := prepare(ctx, object, call.Retry)
	if errors.Is(err, claim.ErrUnprepared) {
		return kubeletplugin.PrepareResult{Err: err} // the kubelet does not wait for the claim
	}
	defer p.Ledger.Changed()
	p.Observer.Prepared(kindsOf(devices), p.Clock.Since(start), report.Reason(err))
	call.End(devices, err)
	if err != nil {
		p.Hardware.PrepareFailed(err)
		logger.V(2).Info("Could not prepare the claim", "err", err) // the kubelet logs it and writes the pod's event
		return kubeletplugin.PrepareResult{Err: err}
	}
	p.Ledger.SetRefused(object.UID, false)
	p.Accounts.Held(object, devices)
	result := kubeletplugin.PrepareResult{Devices: make([]kubeletplugin.Device, len(devices))}
	for i, d := range devices {
		result.Devices[i] = kubeletplugin.Device{
			Requests:     []string{d.Request},
			PoolName:     d.Pool,
			DeviceName:   d.Name.String(),
			ShareID:      d.ShareID,
			CDIDeviceIDs: d.CDIDeviceIDs,
			Metadata:     metadataOf(d),
		}
	}
	return result
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	errs := make([]error, len(claims))
	inParallel(claims, func(i int, claim kubeletplugin.NamespacedObject) { errs[i] = p.unprepare(ctx, claim) })
	byUID := make(map[types.UID]error, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = errs[i]
	}
	return byUID, nil
}

func (p *Plugin) unprepare(ctx context.Context, claim kubeletplugin.NamespacedObject) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", claim.UID))
	p.Reporter.Recall(ctx, claim.UID)
	start := p.Clock.Now()
	err := p.Claims.Unprepare(ctx, claim.UID)
	p.Observer.Unprepared(p.Clock.Since(start), err)
	p.Ledger.SetRefused(claim.UID, errors.Is(err, gpu.ErrInUse))
	p.Ledger.Changed()
	switch {
	case err == nil:
		p.Accounts.Released(claim.UID)
		p.Reporter.Released(claim.UID)
	case errors.Is(err, gpu.ErrInUse):
		p.Reporter.UnprepareRefused(ctx, claim, err)
	}
	return err
}

// inParallel calls do for every item concurrently, and waits for all calls.
func inParallel[T any](items []T, do func(int, T)) {
	if len(items) == 1 {
		do(0, items[0])
		return
	}
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { do(i, item) })
	}
	all.Wait()
}

// kindsOf returns the kinds of devices as a metric label, such as "gpu" or
// "gpu+mig-share". It returns "unknown" if there are no devices.
func kindsOf(devices []claim.Device) string {
	var kinds []string
	for _, d := range devices {
		label := string(d.Name.Kind)
		if d.Terms.Memory() != 0 && d.Name.Kind.Takes() == kind.TakesMemory {
			label += "-share"
		}
		kinds = append(kinds, label)
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); len(kinds) == 0 {
		return "unknown"
	}
	return strings.Join(kinds, "+")
}
