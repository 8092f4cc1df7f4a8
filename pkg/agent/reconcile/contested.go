// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// findings are what one comparison has found on held devices.
type findings struct {
	report.Findings
	// checked are the devices on which all foreign processes are known.
	checked []kind.Name
}

// examine finds uses and losses of held devices that the API does not show. It only reads. What
// cannot be read is in the log, and absent from the findings.
func (r *Reconciler) examine(ctx context.Context, needed []report.Holder) (f findings) {
	f.Foreign, f.checked = r.foreignProcesses(ctx, needed)
	f.Limits = r.checkLimits(ctx)
	f.Daemons = r.listDaemons(ctx)
	f.Conflicts = map[kind.Name][]report.Conflict{}
	for _, holder := range needed {
		for _, device := range holder.Devices {
			if _, isRead := f.Conflicts[device.Name]; !isRead && r.Conflicts != nil {
				f.Conflicts[device.Name] = r.Conflicts(ctx, device.Name)
			}
		}
	}
	return f
}

// record passes the findings to the ledger, to viewers and to the metrics.
func (r *Reconciler) record(needed []report.Holder, found []unneeded, f findings) {
	r.daemons = f.Daemons
	held, contested := make([]types.UID, 0, len(needed)), make([]types.UID, 0, len(found))
	for _, holder := range needed {
		held = append(held, holder.UID)
	}
	for _, u := range found {
		contested = append(contested, u.UID)
	}
	r.Ledger.SetContested(held, contested, f.Foreign)
	r.Foreign.SetForeignProcesses(f.Foreign, f.checked)
	foreign, unlimited := map[string]int{}, map[string]int{}
	for _, process := range f.Foreign {
		foreign[process.Device.String()]++
	}
	for _, check := range f.Limits {
		if check.Err == nil {
			unlimited[check.Device.String()] = len(check.Unlimited)
		}
	}
	r.Observer.ForeignProcesses(foreign)
	r.Observer.UnlimitedContainers(unlimited)
}

// reportable returns the prepared claims, without those whose status has the reason of a failed prepare
// or unprepare.
func (r *Reconciler) reportable(needed []report.Holder) []report.Holder {
	return slices.DeleteFunc(slices.Clone(needed), func(h report.Holder) bool {
		return h.Phase != claim.Prepared || r.refused[h.UID] || r.Ledger.IsRefused(h.UID)
	})
}

func (r *Reconciler) foreignProcesses(ctx context.Context, needed []report.Holder) ([]claim.ForeignProcess, []kind.Name) {
	defer r.Tasks.Begin()()
	held := make([]claim.Claim, 0, len(needed))
	for _, holder := range needed {
		held = append(held, holder.Claim)
	}
	foreign, checked, err := r.Claims.ForeignProcesses(ctx, held)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for processes without a claim, will try again", "after", r.Interval)
	}
	return foreign, checked
}

// checkLimits checks the memory limits of containers.
func (r *Reconciler) checkLimits(ctx context.Context) []claim.LimitCheck {
	defer r.Tasks.Begin()()
	checks, err := r.Claims.CheckLimits(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot check memory limits, will try again", "after", r.Interval)
	}
	for _, check := range checks {
		if check.Err != nil {
			klog.FromContext(ctx).Error(check.Err, "Cannot check memory limits of a device, will try again", "device", check.Device, "after", r.Interval)
		}
	}
	return checks
}

// listDaemons lists the daemons. It returns the last ones if the supervisor does not answer.
func (r *Reconciler) listDaemons(ctx context.Context) []report.MPSDaemon {
	if r.Daemons == nil {
		return nil
	}
	defer r.Tasks.Begin()()
	all, err := r.Daemons(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot list MPS daemons, will retry", "err", err, "after", consumersTime)
		return r.daemons
	}
	return all
}

// watchDaemons compares the claims at once if a daemon has changed: programs hang or fail.
func (r *Reconciler) watchDaemons(ctx context.Context) {
	now := r.listDaemons(ctx)
	changed := !slices.EqualFunc(r.daemons, now, report.MPSDaemon.Equal)
	r.daemons = now
	// Also without a change: a claim may be released after the reconciliation has seen the change.
	r.Reporter.Interrupted(ctx, now)
	if changed {
		r.checkForeign(ctx)
	}
}
