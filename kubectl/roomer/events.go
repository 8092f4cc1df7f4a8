// SPDX-License-Identifier: Apache-2.0

package roomer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
)

// Reasons of events.
const (
	reasonRoom    = "MakingRoom"
	reasonNoRoom  = "NoRoom"
	reasonEvicted = "EvictedForRoom"
)

// eventPatience is the timeout of the request for an event.
const eventPatience = 10 * time.Second

// event creates an event on a pod, once for each text. Tenants read it, so it names no pod.
func (c *Controller) event(ctx context.Context, pod *corev1.Pod, kind, reason, format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(pod), "reason", reason, "note", note)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventPatience)
	defer cancel()
	_, err := c.Client.EventsV1().Events(pod.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("gpu-room-%x", sha256.Sum224([]byte(string(pod.UID)+reason+note)))},
		EventTime:           metav1.NowMicro(),
		ReportingController: string(cordon.Controller), ReportingInstance: c.Instance,
		Action: "Room", Type: kind, Reason: reason, Note: note,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		log.Info("Created an event")
	case !apierrors.IsAlreadyExists(err):
		log.Error(err, "Cannot create an event")
	}
}
