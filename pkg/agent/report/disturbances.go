// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// MPSDaemon is an MPS daemon that programs have lost or wait for.
type MPSDaemon struct {
	// Name is the device of its shares, or the GPU of its seats.
	Name string
	// IsDown is set while the daemon does not run and cannot be started.
	IsDown bool
	// Interrupted is when programs last lost their server; zero if they have not.
	Interrupted time.Time
	// Waiting are the UIDs of pods with a program that waits for another user's, sorted.
	Waiting []types.UID
}

// Equal reports whether two states of a daemon are the same.
func (d MPSDaemon) Equal(other MPSDaemon) bool {
	return d.Name == other.Name && d.IsDown == other.IsDown && d.Interrupted.Equal(other.Interrupted) && slices.Equal(d.Waiting, other.Waiting)
}

// releasedPatience is the time for which released shares are kept. An interruption that has ended their
// programs may become known within it.
const releasedPatience = time.Minute

// shares are the claims with an MPS share. The zero value is ready to use.
type shares struct {
	mu sync.Mutex
	// held has all claims that are known. One without a share has no object.
	held     map[types.UID]Holder
	released []releasedShare
}

// releasedShare is a claim that was released at a time.
type releasedShare struct {
	Holder
	released time.Time
}

// hold records a claim.
func (s *shares) hold(object *resourceapi.ResourceClaim, devices []claim.Device) {
	var n Holder
	if slices.ContainsFunc(devices, isShare) {
		n = Holder{claim.Claim{Devices: devices}, object}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[types.UID]Holder{}
	}
	s.held[object.UID] = n
}

func isShare(d claim.Device) bool { return d.Strategy() == v1alpha1.StrategyMPS }

func (s *shares) knows(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.held[uid]
	return known
}

// recallPatience is the timeout of one read in a call of the kubelet.
const recallPatience = 2 * time.Second

// Recall holds a claim that is about to be released and was prepared by an earlier agent. The API
// still has its pods: the kubelet unprepares a claim before it reports the end of the pod.
func (r *Reporter) Recall(ctx context.Context, uid types.UID) {
	if r.shares.knows(uid) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallPatience)
	defer cancel()
	all, _ := r.Claims.Held(ctx) // the release reads the same records, and reports an error
	at := slices.IndexFunc(all, func(c claim.Claim) bool { return c.UID == uid })
	if at < 0 || !slices.ContainsFunc(all[at].Devices, isShare) {
		return
	}
	object, err := r.Client.ResourceV1().ResourceClaims(all[at].Namespace).Get(ctx, all[at].Name, metav1.GetOptions{})
	if err != nil || object.UID != uid {
		klog.FromContext(ctx).V(2).Info("Cannot read a claim that ends; its pods get no event if their share was interrupted", "err", err)
		return
	}
	r.shares.hold(object, all[at].Devices)
}

// release records when a claim was released.
func (s *shares) release(uid types.UID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.held[uid]; n.Object != nil {
		s.released = append(s.released, releasedShare{n, now})
	}
	delete(s.held, uid)
}

// recentlyReleased returns the claims that were released a moment ago, and forgets older ones.
func (s *shares) recentlyReleased(now time.Time) []releasedShare {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = slices.DeleteFunc(s.released, func(l releasedShare) bool { return now.Sub(l.released) > releasedPatience })
	return slices.Clone(s.released)
}

// forget removes a claim that was released.
func (s *shares) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = slices.DeleteFunc(s.released, func(l releasedShare) bool { return l.Object.UID == uid })
}

// Interrupted creates the events about interrupted shares of claims that were released a moment ago.
func (r *Reporter) Interrupted(ctx context.Context, daemons []MPSDaemon) {
	for _, l := range r.shares.recentlyReleased(r.Clock.Now()) {
		if r.reportInterruption(ctx, l, daemons) {
			r.shares.forget(l.Object.UID)
		}
	}
}

// reportInterruption creates the event about an interruption on a claim that is released already: a pod
// whose program has failed ends at once, and is the one that needs it. It reports whether it did.
func (r *Reporter) reportInterruption(ctx context.Context, l releasedShare, daemons []MPSDaemon) (reported bool) {
	for _, d := range l.Devices {
		for _, c := range disturbances(l.Holder, d.Name.String(), daemons) {
			if c.kind != v1alpha1.ConditionShareInterrupted || l.released.Before(c.since) {
				continue
			}
			if err := r.createDisturbanceEvent(ctx, l.Object, c); err != nil {
				klog.FromContext(ctx).Info("Cannot create an event about a released claim", "claim", klog.KObj(l.Object), "reason", c.kind, "err", err)
				return false
			}
			reported = true
		}
	}
	return reported
}

// disturbanceAction is the action of the events about shares whose programs do not compute.
const disturbanceAction = "CheckClaim"

// withDisturbances adds the disturbances of the shares to the devices. It creates an event about
// each that the object lacks.
func (r *Reporter) withDisturbances(ctx context.Context, s *claimStatus, h Holder, daemons []MPSDaemon) *claimStatus {
	var found []condition
	for i := range s.devices {
		d := &s.devices[i]
		disturbances := disturbances(h, d.device, daemons)
		d.more = append(d.more, disturbances...)
		for _, c := range disturbances {
			if !hasCondition(h.Object, r.DriverName, *d, c) {
				found = append(found, c)
			}
		}
	}
	for _, c := range found {
		// The condition is written with a later round if the event fails: it is the record of it.
		if err := r.createDisturbanceEvent(ctx, h.Object, c); err != nil {
			klog.FromContext(ctx).Info("Cannot create an event about a claim, will retry", "claim", klog.KObj(h.Object), "reason", c.kind, "err", err)
			s.drop(c)
		}
	}
	return s
}

// createDisturbanceEvent creates the event about a disturbance on the claim and its pods. The name of
// the event follows from its object and its text, so a pod has one about two claims.
func (r *Reporter) createDisturbanceEvent(ctx context.Context, object *resourceapi.ResourceClaim, c condition) error {
	return r.events.onUsers(object, event{
		action: disturbanceAction, kind: corev1.EventTypeWarning, reason: c.kind, occasion: c.kind + " " + c.message, note: sentence(c.message) + ".",
	})(ctx)
}

// drop removes a condition from all devices.
func (s *claimStatus) drop(c condition) {
	for i := range s.devices {
		s.devices[i].more = slices.DeleteFunc(s.devices[i].more, func(other condition) bool { return other == c })
	}
}

// hasCondition reports whether the object has the condition of a device already.
func hasCondition(object *resourceapi.ResourceClaim, driver string, d deviceStatus, c condition) bool {
	return slices.ContainsFunc(object.Status.Devices, func(e resourceapi.AllocatedDeviceStatus) bool {
		have := meta.FindStatusCondition(e.Conditions, c.kind)
		return d.isEntry(e, driver) && have != nil && have.Status == c.status() && have.Message == c.message
	})
}

// disturbances returns the conditions of a device of the claim for which its programs do not compute.
// It returns none for a device without an MPS daemon.
func disturbances(h Holder, device string, daemons []MPSDaemon) (found []condition) {
	own := slices.IndexFunc(h.Devices, func(d claim.Device) bool { return d.Name.String() == device && d.Strategy() == v1alpha1.StrategyMPS })
	if own < 0 {
		return nil
	}
	at := slices.IndexFunc(daemons, func(d MPSDaemon) bool { return d.Name == h.Devices[own].Name.MPSDaemon().String() })
	if at < 0 {
		return nil
	}
	add := func(kind, reason, where string, since time.Time) {
		c, _ := cause.Of(kind, reason)
		found = append(found, condition{kind: kind, reason: reason, since: since, message: fmt.Sprintf("%s (%s): %s; %s", c.Meaning, where, c.Effect, c.User)})
	}
	d := daemons[at]
	if d.IsDown {
		add(v1alpha1.ConditionShareUnserved, v1alpha1.ReasonMPSNotRunning, device, time.Time{})
	}
	if allocatedAt(h.Object).Before(d.Interrupted) {
		add(v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, device+", "+d.Interrupted.UTC().Format(time.RFC3339), d.Interrupted)
	}
	if slices.ContainsFunc(h.Object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return slices.Contains(d.Waiting, r.UID) }) {
		add(v1alpha1.ConditionShareWaits, v1alpha1.ReasonOtherUser, device, time.Time{})
	}
	return found
}

// allocatedAt returns when a claim was allocated, or if that is not recorded, created.
func allocatedAt(object *resourceapi.ResourceClaim) time.Time {
	if a := object.Status.Allocation; a != nil && a.AllocationTimestamp != nil {
		return a.AllocationTimestamp.Time
	}
	return object.CreationTimestamp.Time
}

// countDisturbances adds the conditions of shares by the code of their cause.
func (s *claimStatus) countDisturbances(byCause map[string]int) {
	for _, d := range s.devices {
		for _, c := range d.more {
			if entry, known := cause.Of(c.kind, c.reason); known {
				byCause[entry.Code]++
			}
		}
	}
}
