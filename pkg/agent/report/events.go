// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

const (
	// maxInstance is the API's limit of the reporting instance of an event, in bytes.
	maxInstance = 128
	// eventsPerMinute is the rate at which a node creates events, with a burst of eventsAtOnce.
	// Events about GPUs and about claims have a rate each: the claims of one tenant do not delay
	// what others learn about their GPUs. Events beyond it are created later.
	eventsPerMinute, eventsAtOnce = 30, 50
	// eventPatience is the timeout of one request for events.
	eventPatience = 10 * time.Second
)

// errRateLimit means that the events of a round are too many.
var errRateLimit = errors.New("too many events")

// events creates events about claims in the name of the driver and its node. The chart's policy
// own-events admits no others.
type events struct {
	Options
	limit flowcontrol.RateLimiter
}

func newEvents(o Options) events {
	return events{o, flowcontrol.NewTokenBucketRateLimiterWithClock(eventsPerMinute/60., eventsAtOnce, o.Clock)}
}

// event is an event about a device or a claim.
type event struct {
	action, kind, reason, note string
	// device and occasion distinguish the event from others on the same object.
	device, occasion string
}

// name returns the name of the event on an object, which the object, the device and the occasion
// determine.
func (e event) name(object corev1.ObjectReference) string {
	hash := sha256.Sum256([]byte(strings.Join([]string{object.Kind, string(object.UID), e.device, e.occasion}, "\n")))
	suffix := "." + hex.EncodeToString(hash[:8])
	prefix := object.Name[:min(len(object.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(prefix, "-.") + suffix
}

// onUsers returns a function that creates an event on a claim and its pods. After an error it goes on with the
// object of the error when it is called again.
func (e *events) onUsers(object *resourceapi.ResourceClaim, content event) func(context.Context) error {
	users := usersOf(object)
	return func(ctx context.Context) error {
		for len(users) > 0 {
			if err := e.create(ctx, users[0], content); err != nil {
				return err
			}
			users = users[1:]
		}
		return nil
	}
}

// create creates an event on an object. It succeeds if the event exists, if the namespace ends, and
// if a retry would be refused too.
func (e *events) create(ctx context.Context, object corev1.ObjectReference, content event) error {
	if !e.limit.TryAccept() {
		return errRateLimit
	}
	ctx, cancel := context.WithTimeout(ctx, eventPatience)
	defer cancel()
	_, err := e.Client.EventsV1().Events(object.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: object.Namespace, Name: content.name(object)},
		EventTime:           metav1.NewMicroTime(e.Clock.Now()),
		ReportingController: e.DriverName, ReportingInstance: e.NodeName[:min(len(e.NodeName), maxInstance)],
		Action: content.action, Type: content.kind, Reason: content.reason, Note: noteOf(content.note), Regarding: object,
	}, metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case apierrors.IsInvalid(err):
		klog.FromContext(ctx).Error(err, "The API server refuses an event", "object", klog.KRef(object.Namespace, object.Name), "reason", content.reason)
	default:
		return fmt.Errorf("create event on %s %s/%s: %w", object.Kind, object.Namespace, object.Name, err)
	}
	return nil
}

// usersOf returns references to the claim and its pods.
func usersOf(object *resourceapi.ResourceClaim) []corev1.ObjectReference {
	users := []corev1.ObjectReference{referenceToClaim(object.Namespace, object.Name, object.UID)}
	for _, pod := range claim.ReservedPods(object) {
		users = append(users, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: object.Namespace, Name: pod.Name, UID: pod.UID})
	}
	return users
}

func referenceToClaim(namespace, name string, uid types.UID) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: namespace, Name: name, UID: uid}
}

// noteOf returns a text that fits into the note of an event.
func noteOf(text string) string {
	const maxNote, more = 1024, "…"
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-len(more)], "") + more
}
