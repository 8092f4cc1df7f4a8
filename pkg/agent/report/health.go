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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

const (
	// eventsInterval is the time between rounds without a change of a GPU's health.
	eventsInterval = time.Minute
	// maxCauses is the number of causes with events while a GPU is unhealthy. It bounds the
	// events about a GPU whose cause changes all the time.
	maxCauses = 8
)

// eventsBackoff returns the back-off between rounds that fail.
func eventsBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Second, Factor: 2, Steps: 10, Cap: 5 * time.Minute}
}

// healthEvents creates events when a GPU fails, and when it is healthy again. They are on the
// claims that hold a device of the GPU, and on the pods of these claims.
//
// The state of the GPUs and the records on the disk determine which events are due. So nothing
// is queued: each round compares both, and the next round retries failures. A restart of the
// agent repeats no event.
type healthEvents struct {
	events
	records healthRecords
}

func newHealthEvents(o Options) *healthEvents {
	return &healthEvents{newEvents(o), healthRecords{o.Records}}
}

// run runs rounds until ctx ends: at the start, after each change, and at intervals.
func (h *healthEvents) run(ctx context.Context) {
	changed, unsubscribe := h.Health.Subscribe()
	defer unsubscribe()
	pause := eventsBackoff()
	for {
		next := eventsInterval
		switch err := h.round(ctx); {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = eventsBackoff()
		case errors.Is(err, errRateLimit):
			next = time.Minute / eventsPerMinute
		default:
			next = pause.Step()
			klog.FromContext(ctx).Error(err, "Cannot create events about GPUs, will retry", "after", next)
		}
		timer := h.Clock.NewTimer(next)
		select {
		case <-changed:
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round creates the events that are due. It continues after the API server has refused an
// event, and ends if the server does not answer or the rate limit is reached.
func (h *healthEvents) round(ctx context.Context) error {
	held, err := h.Claims.Held(ctx)
	if err != nil {
		return err
	}
	records, err := h.records.load(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range held {
		for _, address := range gpusOf(c) {
			r := healthRecord{Claim: c.UID, Namespace: c.Namespace, Name: c.Name, GPU: address.DeviceName()}
			if last, isReported := records[r.key()]; isReported {
				r.Causes, r.Created = last.Causes, last.Created
				delete(records, r.key())
			}
			err := h.update(ctx, c, address, r)
			errs = append(errs, err)
			if err != nil && !isAnswer(err) {
				return errors.Join(errs...)
			}
		}
	}
	// The other records are about claims that hold no device of the GPU any more.
	for _, r := range records {
		errs = append(errs, h.forget(r))
	}
	return errors.Join(errs...)
}

// update creates the events that are due about one GPU of a claim.
func (h *healthEvents) update(ctx context.Context, c claim.Claim, address gpu.PCIAddress, r healthRecord) error {
	value, since, known := h.Health.CauseAt(address)
	if !known {
		return nil
	}
	switch {
	case value != "":
		// No container of the claim runs in other phases, or its pod ends.
		if c.Phase != claim.Prepared && c.Phase != claim.Unrecorded {
			return nil
		}
		return h.reportFault(ctx, r, address, value, since)
	case r.isReported():
		if err := h.create(ctx, &r, h.recovery(r)); err != nil {
			return err
		}
	}
	return h.forget(r)
}

// reportFault creates the events about a cause, unless they were created before.
func (h *healthEvents) reportFault(ctx context.Context, r healthRecord, address gpu.PCIAddress, value string, since time.Time) error {
	i := r.find(value, since)
	if i < 0 {
		if len(r.Causes) >= maxCauses {
			return nil
		}
		if since.IsZero() {
			since = h.Clock.Now()
		}
		// The record of the time comes first: the names of the events follow from it.
		i, r.Causes = len(r.Causes), append(r.Causes, reportedCause{Cause: value, Since: since.Round(0).UTC()})
		if err := h.records.write(r); err != nil {
			return err
		}
	}
	if r.Causes[i].Reported {
		return nil
	}
	if err := h.create(ctx, &r, h.failure(r.Causes[i], address)); err != nil {
		return err
	}
	r.Causes[i].Reported, r.Created = true, nil
	return h.records.write(r)
}

// forget deletes a record.
func (h *healthEvents) forget(r healthRecord) error {
	if len(r.Causes) == 0 && len(r.Created) == 0 {
		return nil
	}
	return h.records.delete(r)
}

// gpusOf returns the addresses of the GPUs of which a claim holds devices, each once.
func gpusOf(c claim.Claim) (addresses []gpu.PCIAddress) {
	seen := map[gpu.PCIAddress]bool{}
	for _, d := range c.Devices {
		if d.Name.OnGPU() && !seen[d.Name.Address] {
			seen[d.Name.Address] = true
			addresses = append(addresses, d.Name.Address)
		}
	}
	return addresses
}

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
func (h *healthEvents) recovery(r healthRecord) event {
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
func (h *healthEvents) create(ctx context.Context, r *healthRecord, e event) error {
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
		err = errors.Join(err, h.records.write(*r))
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
