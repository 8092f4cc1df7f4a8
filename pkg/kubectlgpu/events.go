// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// mostEvents bounds the events of an explanation.
const mostEvents = 3

// addEvents adds the latest warnings of a pod, such as the reason why its claims are not
// created or not prepared, and remedies. Those of the scheduler are in the pod's condition.
func (e *explanation) addEvents(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	list, err := client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)),
			fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
			fields.OneTermNotEqualSelector("reason", "FailedScheduling"),
		).String(),
	})
	if apierrors.IsForbidden(err) {
		e.Facts = append(e.Facts, "you have no right to list events, which may have the reason")
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return when(b).Compare(when(a).Time) })
	var seen []string
	for _, event := range list.Items {
		text := fmt.Sprintf("event %s: %s", event.Reason, event.Message)
		if len(seen) < mostEvents && !slices.Contains(seen, text) {
			seen = append(seen, text)
			e.Advice = append(e.Advice, refusalAdvice(event.Message)...)
		}
	}
	e.Facts, e.Advice = append(e.Facts, seen...), slices.Compact(e.Advice)
	return nil
}

// refusalAdvice returns a remedy if the API server refuses to create the pod's claim: it
// names the quota or policy only in its message.
func refusalAdvice(message string) []string {
	switch {
	case strings.Contains(message, "exceeded quota: "):
		_, name, _ := strings.Cut(message, "exceeded quota: ")
		name, _, _ = strings.Cut(name, ",")
		return []string{fmt.Sprintf("end other claims of the namespace, request less, or have an administrator raise the quota: kubectl describe resourcequota %s", name)}
	case strings.Contains(message, "ValidatingAdmissionPolicy "):
		return []string{"change the claim as the policy in the event requires; the administrator of the cluster has set it"}
	default:
		return nil
	}
}

// when returns the time of an event, in the field that its reporter has set.
func when(event corev1.Event) metav1.Time {
	switch {
	case event.Series != nil:
		return metav1.Time{Time: event.Series.LastObservedTime.Time}
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp
	case !event.EventTime.IsZero():
		return metav1.Time{Time: event.EventTime.Time}
	default:
		return event.CreationTimestamp
	}
}
