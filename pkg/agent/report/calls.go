// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

const (
	// waitingPatience is how long a claim may be refused without a word to its user. The call of
	// the kubelet goes on for 40 seconds, and only its end makes an event of the kubelet.
	waitingPatience = 3 * time.Second
	// readPatience is the timeout of reading a claim that cannot be released.
	readPatience = 15 * time.Second
	// waitingAction and leavingAction are the actions of the events about claims that wait, and that
	// cannot be released.
	waitingAction, leavingAction = "PrepareClaim", "UnprepareClaim"
)

// PrepareCall is a call of the kubelet to prepare a claim.
type PrepareCall struct {
	reporter *Reporter
	object   *resourceapi.ResourceClaim
	start    time.Time
	// reported is the error of the condition. isReported is set once there was one.
	reported   string
	isReported bool
}

// BeginPrepare returns the report on a call that begins now.
func (r *Reporter) BeginPrepare(object *resourceapi.ResourceClaim) *PrepareCall {
	return &PrepareCall{reporter: r, object: object, start: r.Clock.Now()}
}

// Retry reports why an attempt is repeated: in the claim's condition, and in an event on the claim
// and its pods for each reason. The end of the call replaces the condition.
func (c *PrepareCall) Retry(err error) {
	r := c.reporter
	if r.Clock.Since(c.start) < waitingPatience || err.Error() == c.reported {
		return
	}
	c.reported, c.isReported = err.Error(), true
	status := failedStatus(c.object, r.DriverName, err, r.Clock.Now())
	status.createEvents = r.refusalEvents(c.object, waitingAction, v1alpha1.ReasonPrepareRetried, "waits for its device", err)
	r.status.Set(status)
}

// End queues a write of the result of the call.
func (c *PrepareCall) End(devices []claim.Device, err error) {
	r := c.reporter
	status := readyStatus(nameOf(c.object), devices, r.Clock.Now())
	if err != nil {
		status = failedStatus(c.object, r.DriverName, err, r.Clock.Now())
	} else {
		r.shares.hold(c.object, devices)
	}
	if c.isReported { // the object's status is not the last one that was queued
		r.status.Set(status)
		return
	}
	r.setStatus(c.object, status)
}

// refusalEvents creates the event on the claim and its pods. An object has one for each reason of the error.
func (r *Reporter) refusalEvents(object *resourceapi.ResourceClaim, action, reason, what string, err error) func(context.Context) error {
	return r.events.onUsers(object, event{
		action: action, kind: corev1.EventTypeWarning, reason: reason, device: object.Name, occasion: reason + " " + Reason(err),
		note: fmt.Sprintf("Claim %s %s, and is tried again: %v", object.Name, what, err),
	})
}

// UnprepareRefused reports why a claim cannot be released. The kubelet says so only in its log.
func (r *Reporter) UnprepareRefused(ctx context.Context, stuck kubeletplugin.NamespacedObject, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := r.Client.ResourceV1().ResourceClaims(stuck.Namespace).Get(ctx, stuck.Name, metav1.GetOptions{})
	if err != nil || object.UID != stuck.UID {
		klog.FromContext(ctx).V(2).Info("Cannot report on the claim why it stays", "err", err)
		return
	}
	status := failedStatus(object, r.DriverName, refusal, r.Clock.Now())
	for i := range status.devices {
		status.devices[i].reason = v1alpha1.ReasonUnprepareRetried
	}
	status.createEvents = r.refusalEvents(object, leavingAction, v1alpha1.ReasonUnprepareRetried, "keeps its device", refusal)
	r.setStatus(object, status)
}
