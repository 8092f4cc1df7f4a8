// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
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

// reconcileLoop repairs the held claims at the start. Once per interval it repairs them
// and compares them with the API. The first comparison is at a time that depends on the
// node, so that nodes that boot together do not read at the same time. The loop reads
// held claims one by one: watching all claims of a cluster from every node would cost
// the API server far more.
func (p *Plugin) reconcileLoop(ctx context.Context) {
	p.repair(ctx)
	next := p.Clock.NewTimer(firstRound(p.NodeName, p.ReconcileInterval))
	defer next.Stop()
	consumers := p.Clock.NewTicker(consumersTime)
	defer consumers.Stop()
	for {
		select {
		case <-consumers.C():
			p.recordConsumers(ctx)
			p.watchDaemons(ctx)
		case <-next.C():
			next.Reset(p.ReconcileInterval)
			p.repair(ctx)
			p.checkSlices(ctx)
			p.recordConsumers(ctx)
			p.reconcile(ctx)
		case <-p.repairs:
			p.repair(ctx)
		case done := <-p.checks:
			if p.Clock.Since(p.compared) >= foreignPause {
				p.checkForeign(ctx)
			}
			close(done)
		case <-ctx.Done():
			return
		}
	}
}

// CheckForeign compares the processes on held devices with the claims. It does nothing if that
// was done in the last 10 seconds. It waits for the result, or until ctx ends.
func (p *Plugin) CheckForeign(ctx context.Context) {
	done := make(chan struct{})
	select {
	case p.checks <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (p *Plugin) checkForeign(ctx context.Context) {
	if _, _, err := p.compareHeld(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot list the claims held", "err", err)
	}
}

// firstRound returns the delay before a node's first round: a part of the interval that
// depends on the node's name.
func firstRound(node string, interval time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // never fails
	return time.Duration(hash.Sum64() % uint64(max(interval, 1)))
}

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
func (p *Plugin) Repair() { notify.Wake(p.repairs) }

// repair recovers claims and sweeps their leftovers, without the API server.
func (p *Plugin) repair(ctx context.Context) {
	end := p.Tasks.Begin()
	limited, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	_, err := Recover(limited, p.Claims, p.Ledger, p.Hardware)
	end()
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot repair every claim, will try again", "after", p.ReconcileInterval)
	}
	p.sweepMetadata(ctx)
	p.prepareAgain(ctx)
}

// prepareAgain prepares the claims without their files, over the plugin's own socket. No
// container of such a claim starts. The kubelet does not repeat its call, and upstream writes
// the metadata files and their specs only in one. The call reports on the claim if it fails.
func (p *Plugin) prepareAgain(ctx context.Context) {
	defer p.Tasks.Begin()()
	ctx, cancel := context.WithTimeout(ctx, againPatience)
	defer cancel()
	logger := klog.FromContext(ctx)
	if !p.calls.TryLock() {
		return // the call of the kubelet may write files
	}
	broken, err := p.withoutFiles(ctx)
	p.calls.Unlock()
	if err != nil {
		logger.Error(err, "Cannot find claims without their files, will try again", "after", p.ReconcileInterval)
		return
	}
	p.refused = map[types.UID]bool{}
	for _, c := range broken {
		logger := logger.WithValues("claim", klog.KRef(c.Namespace, c.Name), "claimUID", c.UID)
		if err := p.sockets.Prepare(ctx, c.Ref); err != nil {
			p.refused[c.UID] = true
			logger.Error(err, "Cannot restore the files of a claim, will try again", "after", p.ReconcileInterval)
		} else {
			logger.Info("Restored the files of a claim")
		}
	}
}

// withoutFiles returns the prepared claims that lack a file. Callers hold calls.
func (p *Plugin) withoutFiles(ctx context.Context) ([]claim.Claim, error) {
	claims, err := p.Claims.Held(ctx)
	lost, lostErr := p.Claims.LostSpecs(ctx)
	return slices.DeleteFunc(slices.Clone(claims), func(c claim.Claim) bool {
		return c.Phase != claim.Prepared || !slices.Contains(lost, c.UID) && p.HasMetadata(c)
	}), errors.Join(err, lostErr)
}

// recordConsumers records the pods that have joined claims.
func (p *Plugin) recordConsumers(ctx context.Context) {
	defer p.Tasks.Begin()()
	if err := p.Claims.RecordConsumers(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Cannot record all pods of claims, will try again", "err", err, "after", consumersTime)
	}
}

// sweepMetadata removes the metadata files of claims that are not held. Upstream does that only
// in a call of the kubelet. sweepMetadata does nothing during such calls, which may write
// metadata files; the next round sweeps.
func (p *Plugin) sweepMetadata(ctx context.Context) {
	defer p.Tasks.Begin()()
	if !p.calls.TryLock() {
		return
	}
	defer p.calls.Unlock()
	held := func() ([]claim.Claim, error) { return p.Claims.Held(ctx) }
	if err := p.RemoveUnheld(held); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot remove metadata files, will try again", "after", p.ReconcileInterval)
	}
}

// unneeded is a claim that holds devices and does not need them according to the API.
type unneeded struct {
	claim.Claim
	// object is the claim in the API; nil if it is gone.
	object *resourceapi.ResourceClaim
	why    string
}

// needed is a claim that needs its devices according to the API.
type needed struct {
	claim.Claim
	object *resourceapi.ResourceClaim
}

// reconcile compares the held claims with the API once, and releases unneeded ones: if
// the kubelet has lost its own records, it does not unprepare them. reconcile releases a
// claim only after several rounds agree, see [isGone] and [rounds].
func (p *Plugin) reconcile(ctx context.Context) {
	logger := klog.FromContext(ctx)
	all, found, err := p.compareHeld(ctx)
	if err != nil {
		logger.Error(err, "Cannot list the claims held, will try again", "after", p.ReconcileInterval)
		return
	}
	byUID := map[types.UID]unneeded{}
	var uids []types.UID
	for _, u := range found {
		byUID[u.UID] = u
		uids = append(uids, u.UID)
	}
	released := 0
	for _, uid := range p.rounds.next(len(all), uids) {
		u := byUID[uid]
		delete(byUID, uid)
		if p.release(ctx, u) {
			released++
		}
	}
	if released > 0 {
		p.sweepMetadata(ctx)
	}
	p.Observer.HeldBack(len(uids) - released)
	if len(byUID) > 0 {
		logger.Info("Keeping unneeded claims until another round confirms it", "claims", len(byUID), "held", len(all), "after", p.ReconcileInterval)
	}
}

// compareHeld compares the held claims with the API once, and finds contested devices. It returns
// the held claims and the unneeded ones.
//
// It lists the held claims before it reads the API, so that a claim that is prepared in
// between is not mistaken for a deleted one.
func (p *Plugin) compareHeld(ctx context.Context) (all []claim.Claim, found []unneeded, err error) {
	all, err = p.held(ctx)
	if err != nil {
		return nil, nil, err
	}
	needed, found := p.compare(ctx, all)
	if err := p.checkServer(ctx, found); err != nil {
		klog.FromContext(ctx).Error(err, "The API server does not know this node, keeping all claims", "claims", len(found))
		found = nil
	}
	p.findContested(ctx, needed, found)
	p.compared = p.Clock.Now()
	return all, found, nil
}

func (p *Plugin) held(ctx context.Context) ([]claim.Claim, error) {
	defer p.Tasks.Begin()()
	return p.Claims.Held(ctx)
}

// compare reads each claim from the API. It returns the needed and the unneeded ones, and
// leaves out any claim that could not be read.
func (p *Plugin) compare(ctx context.Context, all []claim.Claim) (needs []needed, found []unneeded) {
	for _, held := range all {
		if p.reads.Wait(ctx) != nil {
			return nil, nil // the agent ends
		}
		object, err := p.read(ctx, held)
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil
			}
			klog.FromContext(ctx).Error(err, "Cannot compare the claim with the API, will try again",
				"claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID, "after", p.ReconcileInterval)
			continue
		}
		if why := p.Claims.WhyUnneeded(held, object); why != "" {
			found = append(found, unneeded{held, object, why})
			continue
		}
		p.Accounts.Seen(object)
		if err := p.Claims.RecordPods(ctx, held, object); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot record the pods of the claim, will try again",
				"claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID, "after", p.ReconcileInterval)
			continue
		}
		needs = append(needs, needed{held, object})
	}
	return needs, found
}

// read returns the claim of that name in the API, or nil if there is none.
func (p *Plugin) read(ctx context.Context, held claim.Claim) (*resourceapi.ResourceClaim, error) {
	defer p.Tasks.Begin()()
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := p.Client.ResourceV1().ResourceClaims(held.Namespace).Get(ctx, held.Name, metav1.GetOptions{})
	if isGone(err, held.Name) {
		return nil, nil
	}
	return object, err
}

// checkServer returns an error unless the API server has this node. A server without it
// belongs to another cluster or has lost its data, so its missing claims may still run
// here. checkServer reads the node only if a claim is unneeded.
func (p *Plugin) checkServer(ctx context.Context, found []unneeded) error {
	if len(found) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	_, err := p.Client.CoreV1().Nodes().Get(ctx, p.NodeName, metav1.GetOptions{})
	return err
}

// release releases an unneeded claim and reports whether it did.
func (p *Plugin) release(ctx context.Context, u unneeded) bool {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(u.Namespace, u.Name), "claimUID", u.UID)
	defer p.Tasks.Begin()()
	limited, cancel := context.WithTimeout(klog.NewContext(ctx, logger), releasePatience)
	defer cancel()
	start := p.Clock.Now()
	released, err := p.Claims.Release(limited, u.Claim, u.object)
	switch {
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Cannot release a claim, will try again", "why", u.why, "after", p.ReconcileInterval)
	case err == nil && !released:
		logger.Info("Keeping a claim that has changed", "why", u.why)
	}
	if err != nil || released {
		p.Observer.Unprepared(p.Clock.Since(start), err)
	}
	if released {
		p.Ledger.Changed()
		p.released(u.UID)
	}
	return released
}
