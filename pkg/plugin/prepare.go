// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. The claims of one
// call belong to one pod, which starts when the last of them is prepared: they
// are prepared at the same time.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(claims))
	each(claims, func(i int, claim *resourceapi.ResourceClaim) { results[i] = p.prepare(ctx, claim) })
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = results[i]
	}
	return byUID, nil
}

func (p *Plugin) prepare(ctx context.Context, object *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KObj(object), "claimUID", object.UID)
	ctx = klog.NewContext(ctx, logger)
	start := p.clock.Now()
	devices, err := p.claims.Prepare(ctx, object)
	p.metrics.prepare.WithLabelValues(kindsOf(devices), outcome(err)).Observe(seconds(start, p.clock.Now()))
	p.report(object, devices, err)
	if err != nil {
		logger.V(2).Info("Could not prepare the claim", "err", err) // the kubelet logs it and tells the pod
		return kubeletplugin.PrepareResult{Err: err}
	}
	result := kubeletplugin.PrepareResult{Devices: make([]kubeletplugin.Device, len(devices))}
	for i, d := range devices {
		result.Devices[i] = kubeletplugin.Device{
			Requests:     []string{d.Request},
			PoolName:     d.Pool,
			DeviceName:   d.Name,
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
	each(claims, func(i int, claim kubeletplugin.NamespacedObject) { errs[i] = p.unprepare(ctx, claim) })
	byUID := make(map[types.UID]error, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = errs[i]
	}
	return byUID, nil
}

func (p *Plugin) unprepare(ctx context.Context, claim kubeletplugin.NamespacedObject) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", claim.UID))
	start := p.clock.Now()
	err := p.claims.Unprepare(ctx, claim.UID)
	p.metrics.unprepare.WithLabelValues(outcome(err)).Observe(seconds(start, p.clock.Now()))
	if err == nil {
		p.status.Forget(claim.UID)
	}
	return err
}

// each runs do for every item, at the same time where there are several, and
// returns when all are done.
func each[T any](items []T, do func(int, T)) {
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

// kindsOf names the kinds of devices for a metric: "gpu", "gpu+mig-share";
// "unknown" where nothing was prepared.
func kindsOf(devices []claim.Device) string {
	var kinds []string
	for _, d := range devices {
		kind := d.Kind.Label()
		if known(d.Share) && d.Share.Memory != 0 {
			kind += "-share"
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); len(kinds) == 0 {
		return "unknown"
	}
	return strings.Join(kinds, "+")
}

// report asks for the claim's status.devices to be written where it does not
// say yet what it should.
func (p *Plugin) report(object *resourceapi.ResourceClaim, devices []claim.Device, err error) {
	status := readyStatus(nameOf(object), devices, p.clock.Now())
	if err != nil {
		status = failedStatus(object, p.driver, err, p.clock.Now())
	}
	if !status.written(object, p.driver) {
		p.status.Set(status)
	}
}
