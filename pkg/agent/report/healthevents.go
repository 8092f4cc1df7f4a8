// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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
// The state of the GPUs and the reports on the disk determine which events are due. So nothing
// is queued: each round compares both, and the next round retries failures. A restart of the
// agent repeats no event.
type healthEvents struct {
	events
	reports reports
}

func newHealthEvents(o Options) *healthEvents {
	return &healthEvents{newEvents(o), reports{o.Records}}
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
	reports, err := h.reports.load(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range held {
		for _, address := range gpusOf(c) {
			r := report{Claim: c.UID, Namespace: c.Namespace, Name: c.Name, GPU: address.DeviceName()}
			if last, isReported := reports[r.key()]; isReported {
				r.Causes, r.Created = last.Causes, last.Created
				delete(reports, r.key())
			}
			err := h.update(ctx, c, address, r)
			errs = append(errs, err)
			if err != nil && !isAnswer(err) {
				return errors.Join(errs...)
			}
		}
	}
	// The other reports are about claims that hold no device of the GPU any more.
	for _, r := range reports {
		errs = append(errs, h.forget(r))
	}
	return errors.Join(errs...)
}

// update creates the events that are due about one GPU of a claim.
func (h *healthEvents) update(ctx context.Context, c claim.Claim, address gpu.PCIAddress, r report) error {
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
func (h *healthEvents) reportFault(ctx context.Context, r report, address gpu.PCIAddress, value string, since time.Time) error {
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
		if err := h.reports.write(r); err != nil {
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
	return h.reports.write(r)
}

// forget deletes a report.
func (h *healthEvents) forget(r report) error {
	if len(r.Causes) == 0 && len(r.Created) == 0 {
		return nil
	}
	return h.reports.delete(r)
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
