// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
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

// followNamespaces queries the supervisor until ctx ends.
func (i *Inventory) followNamespaces(ctx context.Context) {
	if i.o.Namespaces != nil {
		i.namespaces.Follow(ctx, i.o.Clock, nil, i.readNamespaces, func(bool) time.Duration { return namespaceTime })
	}
}

func (i *Inventory) readNamespaces(ctx context.Context, _ bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	return i.o.Namespaces.Namespaces(ctx)
}

// namespacesRead writes the state after a query.
func (i *Inventory) namespacesRead(ctx context.Context, before, now source.Last[bool]) {
	if before.Value != now.Value {
		klog.FromContext(ctx).Info("Read whether MPS has namespaces", "namespaces", now.Value)
	}
	i.write()
}

// RefreshNamespaces queries the supervisor if it has never answered. Call it before a claim
// gets a GPU: agent and supervisor of a node start at the same time, and a share that is
// prepared without a namespace keeps the GPU's other shares from having one.
func (i *Inventory) RefreshNamespaces(ctx context.Context) {
	if i.o.Namespaces == nil || i.namespaces.Last().Good {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, namespacePatience)
	defer cancel()
	i.namespaces.Refresh(ctx, i.readNamespaces)
}

// waitNamespaces waits a moment for the first answer of the supervisor. So the first
// claims to be prepared do not miss the namespaces.
func (i *Inventory) waitNamespaces(ctx context.Context) {
	if i.o.Namespaces != nil {
		i.namespaces.Wait(ctx, i.o.Clock, namespacePatience)
	}
}
