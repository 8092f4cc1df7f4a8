// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

const (
	// scanTimeout bounds one scan. Starting the driver of a large machine without
	// persistence mode takes many seconds; a GPU that does not answer delays the
	// scan by two seconds, see [Hardware].
	scanTimeout = 30 * time.Second
	// followUpTime is the time until the next scan if the set of answering GPUs has
	// changed. Their events are lost until the watch follows them. It is also the time
	// after an event that a recovery action may follow.
	followUpTime = 5 * time.Second
	// passingTime is the time until the next scan while a problem can end without an
	// event: a fault, or a compute mode that is not the default.
	passingTime = time.Minute
	// idleTime is the shortest time until the next scan while all is well. idleJitter
	// is the fraction by which it may be longer. No event reports some lost GPUs, a
	// MIG mode that was changed by hand, or another clique of the fabric.
	idleTime   = 10 * time.Minute
	idleJitter = 0.2
)

// fabricBackoff returns the back-off between hardware scans while a GPU has not
// joined its fabric.
func fabricBackoff() wait.Backoff {
	return wait.Backoff{Duration: 2 * time.Second, Factor: 1.5, Steps: 20, Cap: time.Minute}
}

// outcome holds the results of a scan that determine when the next one is due.
type outcome struct {
	complete bool // every GPU answers
	others   bool // the set of answering GPUs has changed, or a recovery action may follow
	joining  bool // a GPU has not joined its fabric
	passing  bool // a GPU has a problem that ends without an event
}

// outcomeOf returns the outcome of a scan. others is set if the set of answering GPUs has
// changed, or if a recovery action may follow.
func outcomeOf(now state.Snapshot, others bool) outcome {
	return outcome{
		complete: now.Missing() == nil && len(now.Hardware.GPUs) > 0,
		others:   others,
		joining: slices.ContainsFunc(now.Answering(), func(g use.GPU) bool {
			return use.Fabric(g.FabricState) != ""
		}),
		passing: len(now.Conditions.Faults) > 0 || slices.ContainsFunc(now.Node().GPUs, func(g gpu.GPU) bool {
			return g.ComputeMode != "" && g.ComputeMode != gpu.ComputeModeDefault
		}),
	}
}

// pace decides when the next scan is due without an event.
type pace struct {
	missing, fabric wait.Backoff
	// followUp is when the scan is due that follows the last one with others. A scan that is
	// requested before does not take its place.
	followUp time.Time
}

func newPace() *pace { return &pace{missing: source.Backoff(), fabric: fabricBackoff()} }

// next returns the time until the next scan, after one that has ended now.
func (p *pace) next(o outcome, now time.Time) time.Duration {
	if o.others {
		p.followUp = now.Add(followUpTime)
	}
	after := p.regular(o)
	if left := p.followUp.Sub(now); left > 0 {
		after = min(after, left)
	}
	return after
}

// regular returns the time until the next scan if none follows up.
func (p *pace) regular(o outcome) time.Duration {
	if !o.joining {
		p.fabric = fabricBackoff()
	}
	if !o.complete {
		return p.missing.Step()
	}
	p.missing = source.Backoff()
	switch {
	case o.joining:
		return p.fabric.Step()
	case o.passing:
		return passingTime
	default:
		return wait.Jitter(idleTime, idleJitter)
	}
}
