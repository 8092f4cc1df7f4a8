package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// scanTimeout bounds one scan. Starting the driver of a large machine without
	// persistence mode takes many seconds; a GPU that does not answer delays it for
	// two, see [Hardware].
	scanTimeout = 30 * time.Second
	// settleTime is when to scan again after other GPUs answer than before, because
	// events are lost until the watch has turned to them, and after an event that
	// may be followed by a recovery action.
	settleTime = 5 * time.Second
	// passingTime is when to scan again while something is wrong that no event ends:
	// a fault, or the compute mode of a GPU.
	passingTime = time.Minute
	// idleTime is when to scan again at the earliest while all is well, and
	// idleJitter how much longer that may be as a fraction: nothing reports that a
	// GPU is lost without an event, that its MIG mode was changed by hand, or that
	// its fabric has another clique.
	idleTime   = 10 * time.Minute
	idleJitter = 0.2
	// claimsTime is how long changes of what claims hold are gathered. They
	// matter only for what a node no longer offers.
	claimsTime = time.Second
)

// backoff is between scans while a GPU is missing, and between attempts to restart
// a watch.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
}

// fabricBackoff is between scans while a GPU has not joined its fabric.
func fabricBackoff() wait.Backoff {
	return wait.Backoff{Duration: 2 * time.Second, Factor: 1.5, Steps: 20, Cap: time.Minute}
}

// outcome is what a scan means for the next one.
type outcome struct {
	complete  bool // every GPU answers, and what is known is published
	others    bool // other GPUs answer than before, or an event may have sequels
	unsettled bool // a GPU has not joined its fabric
	passing   bool // something is wrong that no event ends
}

// pace decides when to scan without an event that asks for it.
type pace struct {
	missing, fabric wait.Backoff
}

func newPace() *pace { return &pace{missing: backoff(), fabric: fabricBackoff()} }

// next returns the time until the next scan.
func (p *pace) next(o outcome) time.Duration {
	if !o.unsettled {
		p.fabric = fabricBackoff()
	}
	if !o.complete {
		return p.missing.Step()
	}
	p.missing = backoff()
	switch {
	case o.unsettled:
		return p.fabric.Step()
	case o.others:
		return settleTime
	case o.passing:
		return passingTime
	default:
		return wait.Jitter(idleTime, idleJitter)
	}
}
