// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

const (
	// namespaceTime is how often the supervisor is queried: another driver or another
	// supervisor may come at any time.
	namespaceTime = time.Minute
	// namespaceTimeout limits a query, and namespacePatience the time for which the
	// first scan waits for the first answer. Claims wait for that scan.
	namespaceTimeout  = 3 * time.Second
	namespacePatience = 500 * time.Millisecond
)

// NamespaceSource reads whether MPS daemons of this node can have namespaces.
type NamespaceSource interface {
	Namespaces(ctx context.Context) (bool, error)
}

// namespaces is the state of reading whether MPS has namespaces.
type namespaces struct {
	source NamespaceSource // nil if there are no MPS daemons
	tried  chan struct{}   // closed after the first query
	err    error           // of the last query; only followNamespaces uses it
	// answered is set after the first answer. Inventory.mu guards it.
	answered bool
}

// followNamespaces queries the supervisor until ctx ends.
func (i *Inventory) followNamespaces(ctx context.Context) {
	if i.namespaces.source == nil {
		close(i.namespaces.tried)
		return
	}
	pause := scanBackoff()
	for first := true; ; first = false {
		next := namespaceTime
		if i.readNamespaces(ctx) {
			pause = scanBackoff()
		} else {
			next = min(next, pause.Step())
		}
		if first {
			close(i.namespaces.tried)
		}
		timer := i.clock.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// readNamespaces queries the supervisor, and reports whether it has answered. Without an
// answer the last one stays valid.
func (i *Inventory) readNamespaces(ctx context.Context) (ok bool) {
	limited, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	has, err := i.namespaces.source.Namespaces(limited)
	if ctx.Err() != nil {
		return false
	}
	logger := klog.FromContext(ctx)
	if err != nil && fmt.Sprint(err) != fmt.Sprint(i.namespaces.err) {
		logger.Info("Cannot read whether MPS has namespaces, will retry", "err", err)
	}
	i.namespaces.err = err
	if err != nil {
		return false
	}
	i.setNamespaces(ctx, has)
	return true
}

func (i *Inventory) setNamespaces(ctx context.Context, has bool) {
	i.mu.Lock()
	changed := i.known.namespaces != has
	i.known.namespaces, i.namespaces.answered = has, true
	i.mu.Unlock()
	if changed {
		klog.FromContext(ctx).Info("Read whether MPS has namespaces", "namespaces", has)
	}
	i.write()
}

// RefreshNamespaces queries the supervisor if it has never answered. Call it before a claim
// gets a GPU: agent and supervisor of a node start at the same time, and a share that is
// prepared without a namespace keeps the GPU's other shares from having one.
func (i *Inventory) RefreshNamespaces(ctx context.Context) {
	i.mu.Lock()
	answered := i.namespaces.answered
	i.mu.Unlock()
	if i.namespaces.source == nil || answered {
		return
	}
	limited, cancel := context.WithTimeout(ctx, namespacePatience)
	defer cancel()
	// followNamespaces logs errors.
	if has, err := i.namespaces.source.Namespaces(limited); err == nil {
		i.setNamespaces(ctx, has)
	}
}

// waitNamespaces waits a moment for the first answer of the supervisor. So the first
// claims to be prepared do not miss the namespaces.
func (i *Inventory) waitNamespaces(ctx context.Context) {
	select {
	case <-i.namespaces.tried:
		return
	default:
	}
	timer := i.clock.NewTimer(namespacePatience)
	defer timer.Stop()
	select {
	case <-i.namespaces.tried:
	case <-timer.C():
	case <-ctx.Done():
	}
}
