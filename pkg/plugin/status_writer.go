// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// The API server takes a few milliseconds a write; four at a time keep up
	// with a node that starts 16 pods at once.
	statusWorkers = 4
	// A write begins when the pods that start together have their devices, and
	// does not compete with preparing them.
	statusDelay = 100 * time.Millisecond
	// What still fails after the last attempt is found again by the next
	// reconciliation.
	statusAttempts  = 8
	statusFirstWait = 100 * time.Millisecond
	statusLastWait  = 15 * time.Second
	// The drain at shutdown must end well within a pod's grace period of 30 s.
	statusDrain = 5 * time.Second
)

// statusWriter writes status.devices by server-side apply: that needs no read
// before, never conflicts with the scheduler's and kubelet's writes to the same
// status, and touches the entries of this driver only. Only the latest wish for
// a claim is kept.
type statusWriter struct {
	client  resourceclient.ResourceClaimsGetter
	driver  string
	metrics *Metrics
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu     sync.Mutex
	wanted map[types.UID]*claimStatus
}

func newStatusWriter(client resourceclient.ResourceClaimsGetter, driver string, metrics *Metrics) *statusWriter {
	w := &statusWriter{
		client:  client,
		driver:  driver,
		metrics: metrics,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](statusFirstWait, statusLastWait)),
		wanted: map[types.UID]*claimStatus{},
	}
	metrics.watchQueue(w.pending)
	return w
}

// Set asks for a claim's status to be written. It never blocks.
func (w *statusWriter) Set(status *claimStatus) {
	w.mu.Lock()
	w.wanted[status.claim.UID] = status
	w.mu.Unlock()
	w.queue.AddAfter(status.claim.UID, statusDelay)
}

// Forget drops what is not written yet of a claim. What is written goes away
// with the claim's allocation: the API server sees to that.
func (w *statusWriter) Forget(uid types.UID) {
	w.mu.Lock()
	delete(w.wanted, uid)
	w.mu.Unlock()
	w.queue.Forget(uid)
}

// Run writes until ctx ends, and then for a bounded time what is queued.
func (w *statusWriter) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range statusWorkers {
		workers.Go(func() {
			for w.next(work) {
			}
		})
	}
	<-ctx.Done()
	limit := time.AfterFunc(statusDrain, cancel)
	defer limit.Stop()
	w.hurry()
	w.queue.ShutDown()
	workers.Wait()
}

// pending is the number of claims that wait for a write.
func (w *statusWriter) pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wanted)
}

// hurry queues what still waits for its time.
func (w *statusWriter) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.wanted {
		w.queue.Add(uid)
	}
}

func (w *statusWriter) next(ctx context.Context) bool {
	uid, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(uid)
	w.mu.Lock()
	status, ok := w.wanted[uid]
	w.mu.Unlock()
	if !ok {
		w.queue.Forget(uid)
		return true
	}
	logger := klog.FromContext(ctx).WithValues("claim", status.claim)
	err := w.write(ctx, status)
	switch {
	case err == nil:
		w.count(outcomeOK)
		logger.V(4).Info("Wrote the claim's device status")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeForbidden):
		// Gone, replaced by another of the same name, or deallocated meanwhile.
		// (A missing permission on resourceclaims/driver is "invalid" as well.)
		w.count(outcomeDropped)
		logger.V(4).Info("Dropped the device status of a claim that is gone or changed", "reason", err)
	case w.queue.NumRequeues(uid) < statusAttempts-1:
		w.count(outcomeError)
		logger.V(2).Info("Will write the claim's device status again", "err", err)
		w.queue.AddRateLimited(uid)
		return true
	default:
		w.count(outcomeError)
		logger.Error(err, "Could not write the claim's device status; the next reconciliation tries again")
	}
	w.queue.Forget(uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	// A newer wish that arrived meanwhile is queued again and must stay.
	if w.wanted[uid] == status {
		delete(w.wanted, uid)
	}
	return true
}

func (w *statusWriter) count(outcome string) { w.metrics.statusWrites.WithLabelValues(outcome).Inc() }

func (w *statusWriter) write(ctx context.Context, status *claimStatus) error {
	apply := resourceapply.ResourceClaimStatus()
	for _, d := range status.devices {
		entry, err := d.entry(w.driver)
		if err != nil {
			return err
		}
		apply.WithDevices(entry)
	}
	// The UID keeps a new claim of the same name safe from an old one's status.
	claim := resourceapply.ResourceClaim(status.claim.Name, status.claim.Namespace).WithUID(status.claim.UID).WithStatus(apply)
	_, err := w.client.ResourceClaims(status.claim.Namespace).ApplyStatus(ctx, claim, metav1.ApplyOptions{FieldManager: w.driver, Force: true})
	return err
}
