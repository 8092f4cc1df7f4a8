// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"hash/fnv"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

const (
	// readsPerSecond is how fast reconciliation reads claims from the API server,
	// after readsAtOnce. The claim path has no such limit.
	readsPerSecond, readsAtOnce = 5, 5
	// readPatience is how long one read may take.
	readPatience = 15 * time.Second
	// repairPatience is how long repairing all claims may take in one round, and
	// releasePatience how long releasing one may.
	repairPatience, releasePatience = 2 * time.Minute, 45 * time.Second
	// stuckAfter is when a step of the reconciliation, which keeps to the times
	// above unless it hangs, counts as stuck.
	stuckAfter = 5 * time.Minute
)

// reconcileLoop repairs the claims held here at once, and compares them with the
// API for the first time at the node's own point of the interval, so that nodes
// that boot together do not ask together. Only the claims held are read, one by
// one: watching all claims of a cluster from every node would cost the API server
// far more.
func (p *Plugin) reconcileLoop(ctx context.Context) {
	p.repair(ctx)
	next := p.clock.NewTimer(firstRound(p.node, p.interval))
	defer next.Stop()
	for {
		select {
		case <-next.C():
			next.Reset(p.interval)
			p.repair(ctx)
			p.reconcile(ctx)
		case <-p.repairs:
			p.repair(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// firstRound returns how long a node waits before its first round: a part of the
// interval that is the node's own.
func firstRound(node string, interval time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // never fails
	return time.Duration(hash.Sum64() % uint64(max(interval, 1)))
}

// repair recovers claims and what is left of them, without the API server.
func (p *Plugin) repair(ctx context.Context) {
	end := p.step.Begin()
	limited, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	_, err := p.claims.Recover(limited)
	end()
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot repair every claim, will try again", "after", p.interval)
	}
	p.sweepMetadata(ctx)
}

// sweepMetadata removes the metadata files of claims that hold nothing here any
// more. Upstream removes them only if the kubelet asks to unprepare. While calls
// of the kubelet are under way the next round does it: they write such files.
func (p *Plugin) sweepMetadata(ctx context.Context) {
	defer p.step.Begin()()
	if !p.calls.TryLock() {
		return
	}
	defer p.calls.Unlock()
	if err := p.files.removeUnheld(func() ([]claim.Held, error) { return p.claims.Held(ctx) }); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot remove metadata files, will try again", "after", p.interval)
	}
}

// unneeded is a claim that holds devices and, as far as the API says, does not
// need them.
type unneeded struct {
	claim.Held
	// object is the claim in the API; nil if it is gone.
	object *resourceapi.ResourceClaim
	why    string
}

// reconcile compares the claims held with the API once. It lists them before it
// asks the API server, so that a claim that is prepared in between does not look
// as if it were gone.
//
// Nobody asks to unprepare a claim if the kubelet has lost its own records, so
// reconcile releases those that are unneeded. It does so late rather than wrongly:
// see [isGone] and [rounds].
func (p *Plugin) reconcile(ctx context.Context) {
	logger := klog.FromContext(ctx)
	all, err := p.held(ctx)
	if err != nil {
		logger.Error(err, "Cannot list the claims held, will try again", "after", p.interval)
		return
	}
	found := p.compare(ctx, all)
	if err := p.checkServer(ctx, found); err != nil {
		logger.Error(err, "The API server does not know this node, keeping all claims", "claims", len(found))
		found = nil
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
	p.metrics.heldBack.Set(float64(len(uids) - released))
	if len(byUID) > 0 {
		logger.Info("Keeping unneeded claims until another round confirms it", "claims", len(byUID), "held", len(all), "after", p.interval)
	}
}

func (p *Plugin) held(ctx context.Context) ([]claim.Held, error) {
	defer p.step.Begin()()
	return p.claims.Held(ctx)
}

// compare reads each claim from the API and returns those that are unneeded. A
// claim that needs its devices gets the device status that is missing in it.
func (p *Plugin) compare(ctx context.Context, all []claim.Held) []unneeded {
	var found []unneeded
	for _, held := range all {
		if p.reads.Wait(ctx) != nil {
			return nil // the agent ends
		}
		object, err := p.read(ctx, held)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			klog.FromContext(ctx).Error(err, "Cannot compare the claim with the API, will try again",
				"claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID, "after", p.interval)
			continue
		}
		if why := p.claims.Unneeded(held, object); why != "" {
			found = append(found, unneeded{held, object, why})
		} else if held.Phase == claim.Prepared {
			p.report(object, held.Devices, nil)
		}
	}
	return found
}

// read returns the claim of that name in the API, or nil if there is none.
func (p *Plugin) read(ctx context.Context, held claim.Held) (*resourceapi.ResourceClaim, error) {
	defer p.step.Begin()()
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := p.client.ResourceV1().ResourceClaims(held.Namespace).Get(ctx, held.Name, metav1.GetOptions{})
	if isGone(err, held.Name) {
		return nil, nil
	}
	return object, err
}

// checkServer returns an error unless the API server knows this node. One that
// does not is another cluster's, or has lost its data, and its word that claims
// are gone says nothing about what runs here. It asks only if a claim is unneeded.
func (p *Plugin) checkServer(ctx context.Context, found []unneeded) error {
	if len(found) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	_, err := p.client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
	return err
}

// release takes the devices from a claim that is unneeded and reports whether it
// did.
func (p *Plugin) release(ctx context.Context, u unneeded) bool {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(u.Namespace, u.Name), "claimUID", u.UID)
	defer p.step.Begin()()
	limited, cancel := context.WithTimeout(klog.NewContext(ctx, logger), releasePatience)
	defer cancel()
	start := p.clock.Now()
	released, err := p.claims.Release(limited, u.Held, u.object)
	switch {
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Cannot release a claim, will try again", "why", u.why, "after", p.interval)
	case err == nil && !released:
		logger.Info("Keeping a claim that has changed", "why", u.why)
	}
	if err != nil || released {
		p.metrics.unprepare.WithLabelValues(outcome(err)).Observe(seconds(start, p.clock.Now()))
	}
	if released {
		p.status.Forget(u.UID)
	}
	return released
}
