// SPDX-License-Identifier: Apache-2.0

package kubelet

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
)

const (
	// waitingPatience is how long a claim may be refused without a word to its user. The call of
	// the kubelet goes on for 40 seconds, and only its end makes an event of the kubelet.
	waitingPatience = 3 * time.Second
	// waitingAction and leavingAction are the actions of the events about claims that wait, and that
	// cannot be released.
	waitingAction, leavingAction = "PrepareClaim", "UnprepareClaim"
)

// waiting is a prepare call that repeats refused attempts.
type waiting struct {
	plugin *Plugin
	object *resourceapi.ResourceClaim
	start  time.Time
	// reported is the error of the condition. isReported is set once there was one.
	reported   string
	isReported bool
}

func (p *Plugin) newWaiting(object *resourceapi.ResourceClaim) *waiting {
	return &waiting{plugin: p, object: object, start: p.Clock.Now()}
}

// notify reports why the claim waits: in its condition, and in an event on the claim and its pods
// for each reason. The end of the call replaces the condition.
func (w *waiting) notify(err error) {
	p := w.plugin
	if p.Clock.Since(w.start) < waitingPatience || err.Error() == w.reported {
		return
	}
	w.reported, w.isReported = err.Error(), true
	status := failedStatus(w.object, p.DriverName, err, p.Clock.Now())
	status.createEvents = p.refusalEvents(w.object, waitingAction, v1alpha1.ReasonPrepareRetried, "waits for its device", err)
	p.status.Set(status)
}

// refusalEvents creates the event on the claim and its pods. An object has one for each reason of the error.
func (p *Plugin) refusalEvents(object *resourceapi.ResourceClaim, action, reason, what string, err error) func(context.Context) error {
	return p.events.onUsers(object, event{
		action: action, kind: corev1.EventTypeWarning, reason: reason, device: object.Name, occasion: reason + " " + Reason(err),
		note: fmt.Sprintf("Claim %s %s, and is tried again: %v", object.Name, what, err),
	})
}

// notifyUnprepare reports why a claim cannot be released. The kubelet says so only in its log.
func (p *Plugin) notifyUnprepare(ctx context.Context, claim kubeletplugin.NamespacedObject, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := p.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil || object.UID != claim.UID {
		klog.FromContext(ctx).V(2).Info("Cannot report on the claim why it stays", "err", err)
		return
	}
	status := failedStatus(object, p.DriverName, refusal, p.Clock.Now())
	for i := range status.devices {
		status.devices[i].reason = v1alpha1.ReasonUnprepareRetried
	}
	status.createEvents = p.refusalEvents(object, leavingAction, v1alpha1.ReasonUnprepareRetried, "keeps its device", refusal)
	p.setStatus(object, status)
}
