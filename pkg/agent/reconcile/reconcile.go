// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"hash/fnv"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

const (
	// readsPerSecond is the rate at which reconciliation reads claims from the API
	// server, with a burst of readsAtOnce. The kubelet's calls have no such limit.
	readsPerSecond, readsAtOnce = 5, 5
	// consumersTime is the interval at which the pods with devices of claims are recorded, and MPS
	// daemons watched. Later a pod may be forgotten, or hide its devices.
	consumersTime = 10 * time.Second
	// foreignPause is the least time between comparisons that viewers request. Each reads all
	// claims of the node.
	foreignPause = 10 * time.Second
	// firstRounds is the time after the start in which nodes have their first comparison. Until then
	// devices of claims that the cluster has forgotten count as free.
	firstRounds = time.Minute
	// readPatience is the timeout of one read.
	readPatience = 15 * time.Second
	// repairPatience is the timeout of repairing all claims in one round, and
	// releasePatience of releasing one claim.
	repairPatience, releasePatience = 2 * time.Minute, 45 * time.Second
	// againPatience is the timeout of preparing claims again, which reads them from the API
	// server.
	againPatience = 15 * time.Second
	// StuckAfter is the time after which a step of the reconciliation counts as
	// stuck. It is longer than the timeouts above.
	StuckAfter = 5 * time.Minute
)

// Run repairs the held claims at the start, and runs until ctx ends. Once per interval it repairs them
// and compares them with the API. The first comparison is at a time that depends on the
// node, so that agents that start together do not read at the same time. The loop reads
// held claims one by one: watching all claims of a cluster from every node would cost
// the API server far more.
func (r *Reconciler) Run(ctx context.Context) {
	r.repair(ctx)
	next := r.Clock.NewTimer(firstRound(r.NodeName, r.Interval))
	defer next.Stop()
	daemons := r.Clock.NewTicker(consumersTime)
	defer daemons.Stop()
	for {
		select {
		case <-daemons.C():
			r.watchDaemons(ctx)
		case <-next.C():
			next.Reset(r.Interval)
			r.repair(ctx)
			r.checkSlices(ctx)
			r.reconcile(ctx)
		case <-r.repairs:
			r.repair(ctx)
		case done := <-r.checks:
			if r.Clock.Since(r.compared) >= foreignPause {
				r.checkForeign(ctx)
			}
			close(done)
		case <-ctx.Done():
			return
		}
	}
}

// WatchPods records the pods that join claims, until ctx ends. It waits for no round, which a GPU that hangs or
// the API server can keep for minutes.
func (r *Reconciler) WatchPods(ctx context.Context) {
	ticker := r.Clock.NewTicker(consumersTime)
	defer ticker.Stop()
	for {
		r.recordConsumers(ctx)
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// CheckForeign compares the processes on held devices with the claims. It does nothing if that
// was done in the last 10 seconds. It waits for the result, or until ctx ends.
func (r *Reconciler) CheckForeign(ctx context.Context) {
	done := make(chan struct{})
	select {
	case r.checks <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (r *Reconciler) checkForeign(ctx context.Context) {
	if _, _, err := r.compareHeld(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot list the claims held", "err", err)
	}
}

// recordConsumers records the pods that have joined claims.
func (r *Reconciler) recordConsumers(ctx context.Context) {
	if err := r.Claims.RecordConsumers(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Cannot record all pods of claims, will try again", "err", err, "after", consumersTime)
	}
}

// firstRound returns the delay before a node's first round, at most an interval: a part of
// [firstRounds] that depends on the node's name.
func firstRound(node string, interval time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // never fails
	return time.Duration(hash.Sum64() % uint64(max(min(interval, firstRounds), 1)))
}

// unneeded is a claim that holds devices and does not need them according to the API.
type unneeded struct {
	claim.Claim
	// object is the claim in the API; nil if it is gone.
	object *resourceapi.ResourceClaim
	why    string
}

// reconcile compares the held claims with the API once, and releases unneeded ones: if
// the kubelet has lost its own records, it does not unprepare them. reconcile releases a
// claim only after several rounds agree, see [report.IsGone] and [rounds].
func (r *Reconciler) reconcile(ctx context.Context) {
	logger := klog.FromContext(ctx)
	all, found, err := r.compareHeld(ctx)
	if err != nil {
		logger.Error(err, "Cannot list the claims held, will try again", "after", r.Interval)
		return
	}
	byUID := map[types.UID]unneeded{}
	var uids []types.UID
	for _, u := range found {
		byUID[u.UID] = u
		uids = append(uids, u.UID)
	}
	released := 0
	for _, uid := range r.rounds.next(len(all), uids) {
		u := byUID[uid]
		delete(byUID, uid)
		if r.release(ctx, u) {
			released++
		}
	}
	if released > 0 {
		r.sweepMetadata(ctx)
	}
	r.Observer.HeldBack(len(uids) - released)
	if len(byUID) > 0 {
		logger.Info("Keeping unneeded claims until another round confirms it", "claims", len(byUID), "held", len(all), "after", r.Interval)
	}
}

// compareHeld compares the held claims with the API once, and finds contested devices. It returns
// the held claims and the unneeded ones.
//
// It lists the held claims before it reads the API, so that a claim that is prepared in
// between is not mistaken for a deleted one.
func (r *Reconciler) compareHeld(ctx context.Context) (all []claim.Claim, found []unneeded, err error) {
	all, err = r.held(ctx)
	if err != nil {
		return nil, nil, err
	}
	needed, found := r.compare(ctx, all)
	if err := r.checkServer(ctx, found); err != nil {
		klog.FromContext(ctx).Error(err, "The API server does not know this node, keeping all claims", "claims", len(found))
		found = nil
	}
	findings := r.examine(ctx, needed)
	r.record(needed, found, findings)
	r.Reporter.Prepared(ctx, r.reportable(needed), findings.Findings)
	r.compared = r.Clock.Now()
	return all, found, nil
}

func (r *Reconciler) held(ctx context.Context) ([]claim.Claim, error) {
	defer r.Tasks.Begin()()
	return r.Claims.Held(ctx)
}

// compare reads each claim from the API. It returns the needed and the unneeded ones, and
// leaves out any claim that could not be read.
func (r *Reconciler) compare(ctx context.Context, all []claim.Claim) (needed []report.Holder, found []unneeded) {
	for _, held := range all {
		if r.reads.Wait(ctx) != nil {
			return nil, nil // the agent ends
		}
		object, err := r.read(ctx, held)
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil
			}
			klog.FromContext(ctx).Error(err, "Cannot compare the claim with the API, will try again",
				"claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID, "after", r.Interval)
			continue
		}
		if why := r.Claims.WhyUnneeded(held, object); why != "" {
			found = append(found, unneeded{held, object, why})
			continue
		}
		r.Accounts.Seen(object)
		if err := r.Claims.RecordPods(ctx, held, object); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot record the pods of the claim, will try again",
				"claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID, "after", r.Interval)
			continue
		}
		needed = append(needed, report.Holder{Claim: held, Object: object})
	}
	return needed, found
}

// read returns the claim of that name in the API, or nil if there is none.
func (r *Reconciler) read(ctx context.Context, held claim.Claim) (*resourceapi.ResourceClaim, error) {
	defer r.Tasks.Begin()()
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := r.Client.ResourceV1().ResourceClaims(held.Namespace).Get(ctx, held.Name, metav1.GetOptions{})
	if report.IsGone(err, held.Name) {
		return nil, nil
	}
	return object, err
}

// checkServer returns an error unless the API server has this node. A server without it
// belongs to another cluster or has lost its data, so its missing claims may still run
// here. checkServer reads the node only if a claim is unneeded.
func (r *Reconciler) checkServer(ctx context.Context, found []unneeded) error {
	if len(found) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	_, err := r.Client.CoreV1().Nodes().Get(ctx, r.NodeName, metav1.GetOptions{})
	return err
}

// release releases an unneeded claim and reports whether it did.
func (r *Reconciler) release(ctx context.Context, u unneeded) bool {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(u.Namespace, u.Name), "claimUID", u.UID)
	defer r.Tasks.Begin()()
	limited, cancel := context.WithTimeout(klog.NewContext(ctx, logger), releasePatience)
	defer cancel()
	start := r.Clock.Now()
	released, err := r.Claims.Release(limited, u.Claim, u.object)
	switch {
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Cannot release a claim, will try again", "why", u.why, "after", r.Interval)
	case err == nil && !released:
		logger.Info("Keeping a claim that has changed", "why", u.why)
	}
	if err != nil || released {
		r.Observer.Unprepared(r.Clock.Since(start), err)
	}
	if released {
		r.Ledger.Changed()
		r.Accounts.Released(u.UID)
		r.Reporter.Released(u.UID)
	}
	return released
}
