// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// State is how far a pod has come in its life.
type State string

// The states, in the order of a pod's life.
const (
	StatePending     State = "Pending"
	StateCreating    State = "ContainerCreating"
	StateRunning     State = "Running"
	StateTerminating State = "Terminating"
	StateFailed      State = "Failed"
	StateSucceeded   State = "Succeeded"
)

func stateOf(pod *corev1.Pod) State {
	switch {
	case pod.DeletionTimestamp != nil:
		return StateTerminating
	case pod.Status.Phase == corev1.PodFailed:
		return StateFailed
	case pod.Status.Phase == corev1.PodSucceeded:
		return StateSucceeded
	case pod.Status.Phase == corev1.PodRunning:
		return StateRunning
	case pod.Spec.NodeName != "":
		return StateCreating
	default:
		return StatePending
	}
}

// Outcome is the result of an explanation in a word.
type Outcome string

// The outcomes. A pod that has ended without an error is well too.
const (
	OutcomeWell Outcome = "well"
	// OutcomeWaits means that the pod or claim waits for devices, for its start, or for its end.
	OutcomeWaits Outcome = "waits"
	// OutcomeFault means that a device of the pod or claim has a fault.
	OutcomeFault Outcome = "fault"
	// OutcomeFailed means that a container of the pod has failed.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnknown means that the health of a device is not known.
	OutcomeUnknown Outcome = "unknown"
)

// Sources reads the facts of an explanation that are not among the objects of a cluster. A
// function that is nil knows nothing.
type Sources struct {
	// Warnings returns the events of type Warning about a pod. Its error wraps
	// [gpu.ErrPermission] if the user has no right to list events.
	Warnings func(context.Context, *corev1.Pod) ([]corev1.Event, error)
	// Driver returns the pods of the driver on a node.
	Driver func(ctx context.Context, node string) (DriverPods, error)
	// Uses returns the report of a node's agent; nil if it is not known.
	Uses func(ctx context.Context, node string) Uses
	// Repairs reports whether the user may repair nodes.
	Repairs func(context.Context) bool
	// Profiles returns the MIG profiles of a GPU by the name of its product. It returns nil if
	// they are not known.
	Profiles func(product string) []string
	// Now is the time; the zero value means now.
	Now time.Time
}

// DriverPods are the pods of the driver on a node.
type DriverPods struct {
	Agents, Supervisors []*corev1.Pod
	// Namespace is the one of the driver; "" if it is not known.
	Namespace string
	// Unread is the reason why the pods are not known; "" if they are.
	Unread string
}

// age returns the time since a moment in words, such as "12m".
func (e *explaining) age(since time.Time) string {
	return duration.HumanDuration(max(0, e.now.Sub(since)))
}

// addOnce adds texts that the list does not have yet.
func addOnce(list *[]string, texts ...string) {
	for _, text := range texts {
		known := false
		for _, other := range *list {
			known = known || other == text
		}
		if !known && text != "" {
			*list = append(*list, text)
		}
	}
}
