// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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

// Waits reports whether a pod waits for a node, for its start or for its end.
func Waits(pod *corev1.Pod) bool {
	return slices.Contains([]State{StatePending, StateCreating, StateTerminating}, stateOf(pod))
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

// Evidence is what an explanation needs besides the objects of a cluster. The zero value has none
// of it.
type Evidence struct {
	// Warnings are the events of type Warning about the pod.
	Warnings []corev1.Event
	// NoEvents is true if the user has no right to list events.
	NoEvents bool
	// Driver has the pods of the driver; nil if they were not read.
	Driver *doctor.Cluster
	// Uses are the reports of agents, as far as they are known.
	Uses Uses
	// Repairer is true if the user may repair nodes.
	Repairer bool
	// Budgets are the PodDisruptionBudgets of the cluster, if they were read.
	Budgets     []*policyv1.PodDisruptionBudget
	BudgetsRead bool
	// Now is the time; the zero value means now.
	Now time.Time
}

// SetWarnings sets the warnings about the pod. A missing right is evidence, too; other errors are
// returned.
func (e *Evidence) SetWarnings(events []corev1.Event, err error) error {
	if errors.Is(err, gpu.ErrPermission) {
		e.NoEvents = true
		return nil
	}
	e.Warnings = events
	return err
}

// advise sets the remedy, unless a cause before has one.
func (e *explaining) advise(remedy string) {
	if len(e.Advice) == 0 && remedy != "" {
		e.Advice = []string{remedy}
	}
}
