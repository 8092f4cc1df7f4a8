// SPDX-License-Identifier: Apache-2.0

package report

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
	// A write takes the API server a few milliseconds. Four concurrent writes keep
	// up with a node that starts 16 pods at once.
	statusWorkers = 4
	// The delay keeps writes from competing with the preparation of pods that start
	// together.
	statusDelay = 100 * time.Millisecond
	// After the last attempt the next reconciliation queues the status again.
	statusAttempts  = 8
	statusFirstWait = 100 * time.Millisecond
	statusLastWait  = 15 * time.Second
	// The drain at shutdown must be well below a pod's grace period of 30 s.
	statusDrain = 5 * time.Second
)

// statusWriter writes status.devices with server-side apply. Apply needs no prior read,
// and changes only the entries of this driver. It does not conflict with writes of the
// scheduler and the kubelet to the same status. It keeps only the latest desired status
// of a claim.
type statusWriter struct {
	client   resourceclient.ResourceClaimsGetter
	driver   string
	observer Observer
	queue    workqueue.TypedRateLimitingInterface[types.UID]

	mu     sync.Mutex
	wanted map[types.UID]*claimStatus
}

func newStatusWriter(client resourceclient.ResourceClaimsGetter, driver string, observer Observer) *statusWriter {
	return &statusWriter{
		client:   client,
		driver:   driver,
		observer: observer,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](statusFirstWait, statusLastWait)),
		wanted: map[types.UID]*claimStatus{},
	}
}

// Set queues a write of a claim's status. It never blocks.
func (w *statusWriter) Set(status *claimStatus) {
	w.change(func() { w.wanted[status.claim.UID] = status })
	w.queue.AddAfter(status.claim.UID, statusDelay)
}

// Forget drops the queued status of a claim. The API server removes a written status
// together with the claim's allocation.
func (w *statusWriter) Forget(uid types.UID) {
	w.change(func() { delete(w.wanted, uid) })
	w.queue.Forget(uid)
}

// change changes the statuses to write.
func (w *statusWriter) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	w.observer.StatusQueue(len(w.wanted))
}

// Run writes queued status until ctx ends. It then writes the rest of the queue within
// statusDrain.
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
	w.queueAllNow()
	w.queue.ShutDown()
	workers.Wait()
}

// queueAllNow makes all delayed writes due now.
func (w *statusWriter) queueAllNow() {
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
	var untold, err error
	if status.createEvents != nil {
		untold = status.createEvents(ctx)
	}
	if !status.applied {
		err = w.write(ctx, status)
		status.applied = err == nil
	}
	switch {
	case err == nil && untold != nil:
		logger.V(2).Info("Cannot create an event about a claim, will try again", "err", untold)
		w.queue.AddRateLimited(uid)
		return true
	case err == nil:
		w.observer.StatusWritten("ok")
		logger.V(4).Info("Wrote the claim's device status")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeForbidden):
		// The claim is gone, replaced by one with the same name, or deallocated.
		// An "invalid" error because of a missing permission on
		// resourceclaims/driver has the cause "forbidden" and is retried.
		w.observer.StatusWritten("dropped")
		logger.V(4).Info("Dropped the device status of a claim that is gone or changed", "reason", err)
	case w.queue.NumRequeues(uid) < statusAttempts-1:
		w.observer.StatusWritten("error")
		logger.V(2).Info("Will write the claim's device status again", "err", err)
		w.queue.AddRateLimited(uid)
		return true
	default:
		w.observer.StatusWritten("error")
		logger.Error(err, "Cannot write device status, will retry at the next round")
	}
	w.queue.Forget(uid)
	w.change(func() {
		// A newer status that was set meanwhile is queued again and must stay.
		if w.wanted[uid] == status {
			delete(w.wanted, uid)
		}
	})
	return true
}

func (w *statusWriter) write(ctx context.Context, status *claimStatus) error {
	apply := resourceapply.ResourceClaimStatus()
	for _, d := range status.devices {
		entry, err := d.entry(w.driver)
		if err != nil {
			return err
		}
		apply.WithDevices(entry)
	}
	// The UID prevents a new claim of the same name from getting an old status.
	claim := resourceapply.ResourceClaim(status.claim.Name, status.claim.Namespace).WithUID(status.claim.UID).WithStatus(apply)
	_, err := w.client.ResourceClaims(status.claim.Namespace).ApplyStatus(ctx, claim, metav1.ApplyOptions{FieldManager: w.driver, Force: true})
	return err
}
