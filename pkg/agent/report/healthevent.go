// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// healthAction is the action of the events.
const healthAction = "CheckHealth"

// failure returns the event of a GPU that has failed. Its users read it, so it has only texts
// of the table: the error of the driver may name other users' processes.
func (h *healthEvents) failure(c reportedCause, address gpu.PCIAddress) event {
	texts := cause.Unhealthy(c.Cause).For(h.NodeName, address.DeviceName(), address.String())
	return event{
		action: healthAction, kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonGPUUnhealthy,
		note: fmt.Sprintf("%s of node %s is unhealthy (%s): %s. %s. What to do: %s.",
			address.DeviceName(), h.NodeName, texts.Code, texts.Meaning, sentence(texts.Effect), texts.User),
		device: address.DeviceName(), occasion: c.occasion(),
	}
}

// recovery returns the event of a GPU that is well again.
func (h *healthEvents) recovery(r report) event {
	first := r.Causes[0]
	return event{
		action: healthAction, kind: corev1.EventTypeNormal, reason: v1alpha1.ReasonGPUHealthy,
		note: fmt.Sprintf("%s of node %s is healthy again (it was %s). A program that has failed does not recover by itself: delete its pod, so that its controller starts it again.",
			r.GPU, h.NodeName, cause.Unhealthy(first.Cause).Code),
		device: r.GPU, occasion: "healthy " + first.occasion(),
	}
}

// sentence returns a clause with a capital.
func sentence(clause string) string {
	first, size := utf8.DecodeRuneInString(clause)
	return string(unicode.ToUpper(first)) + clause[size:]
}

// create creates the event on the claim and on the pods that it is reserved for. It succeeds
// if they exist already, and if the claim or its namespace is gone.
func (h *healthEvents) create(ctx context.Context, r *report, e event) error {
	limited, cancel := context.WithTimeout(ctx, eventPatience)
	defer cancel()
	object, err := h.Client.ResourceV1().ResourceClaims(r.Namespace).Get(limited, r.Name, metav1.GetOptions{})
	if IsGone(err, r.Name) || err == nil && object.UID != r.Claim {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the claim of an event: %w", err)
	}
	before := len(r.Created)
	for _, on := range usersOf(object) {
		// An agent that has forgotten the event creates it by the same name.
		if slices.Contains(r.Created, e.name(on)) {
			continue
		}
		if err = h.events.create(ctx, on, e); err != nil {
			break
		}
		r.Created = append(r.Created, e.name(on))
	}
	if err != nil && len(r.Created) > before {
		err = errors.Join(err, h.reports.write(*r))
	}
	return err
}

// isAnswer reports whether an error is about one object, so that a request for another
// object may succeed: the API server or the disk has answered.
func isAnswer(err error) bool {
	var sent apierrors.APIStatus
	return !errors.Is(err, errRateLimit) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		errors.As(err, &sent) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err)
}

// occasion identifies the report of a cause.
func (c reportedCause) occasion() string {
	return c.Cause + " " + c.Since.UTC().Format(time.RFC3339Nano)
}
