// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// Recover recovers the claims, and has the node learn what that has changed.
func Recover(ctx context.Context, claims Claims, ledger Ledger, hardware Hardware) (claim.Report, error) {
	report, err := claims.Recover(ctx)
	ledger.Changed()
	if len(report.Swept) > 0 {
		hardware.RequestScan()
	}
	return report, err
}

// Repair requests a repair of the held claims, for example after their CDI specs were
// deleted. It does not wait for the repair.
func (r *Reconciler) Repair() { notify.Wake(r.repairs) }

// repair recovers claims and sweeps their leftovers, without the API server.
func (r *Reconciler) repair(ctx context.Context) {
	end := r.Tasks.Begin()
	limited, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	_, err := Recover(limited, r.Claims, r.Ledger, r.Hardware)
	end()
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot repair every claim, will try again", "after", r.Interval)
	}
	r.sweepMetadata(ctx)
	r.prepareAgain(ctx)
}

// prepareAgain prepares the claims without their files, over the plugin's own socket. No
// container of such a claim starts. The kubelet does not repeat its call, and upstream writes
// the metadata files and their specs only in one. The call reports on the claim if it fails.
func (r *Reconciler) prepareAgain(ctx context.Context) {
	defer r.Tasks.Begin()()
	ctx, cancel := context.WithTimeout(ctx, againPatience)
	defer cancel()
	logger := klog.FromContext(ctx)
	if !r.Calls.TryExclude() {
		return // the call of the kubelet may write files
	}
	broken, err := r.withoutFiles(ctx)
	r.Calls.Admit()
	if err != nil {
		logger.Error(err, "Cannot find claims without their files, will try again", "after", r.Interval)
		return
	}
	r.refused = map[types.UID]bool{}
	for _, c := range broken {
		logger := logger.WithValues("claim", klog.KRef(c.Namespace, c.Name), "claimUID", c.UID)
		if err := r.sockets.PrepareAgain(ctx, c.Ref); err != nil {
			r.refused[c.UID] = true
			logger.Error(err, "Cannot restore the files of a claim, will try again", "after", r.Interval)
		} else {
			logger.Info("Restored the files of a claim")
		}
	}
}

// withoutFiles returns the prepared claims that lack a file. Callers exclude calls of the kubelet.
func (r *Reconciler) withoutFiles(ctx context.Context) ([]claim.Claim, error) {
	claims, err := r.Claims.Held(ctx)
	lost, lostErr := r.Claims.LostSpecs(ctx)
	return slices.DeleteFunc(slices.Clone(claims), func(c claim.Claim) bool {
		return c.Phase != claim.Prepared || !slices.Contains(lost, c.UID) && r.HasMetadata(c)
	}), errors.Join(err, lostErr)
}

// sweepMetadata removes the metadata files of claims that are not held. Upstream does that only
// in a call of the kubelet. sweepMetadata does nothing during such calls, which may write
// metadata files; the next round sweeps.
func (r *Reconciler) sweepMetadata(ctx context.Context) {
	defer r.Tasks.Begin()()
	if !r.Calls.TryExclude() {
		return
	}
	defer r.Calls.Admit()
	held := func() ([]claim.Claim, error) { return r.Claims.Held(ctx) }
	if err := r.RemoveUnheld(held); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot remove metadata files, will try again", "after", r.Interval)
	}
}
