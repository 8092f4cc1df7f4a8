// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Claims reads what claims hold and have changed from the disk. It waits for no scan.
type Claims interface {
	// Held returns the claims that hold devices, in order of namespace, name and UID.
	Held(ctx context.Context) ([]claim.Claim, error)
	// SwitchedModes returns the GPUs whose MIG mode claims have switched on.
	SwitchedModes(ctx context.Context) (map[gpu.PCIAddress]bool, error)
	// ExclusiveGPUs returns the GPUs that claims have put into EXCLUSIVE_PROCESS.
	ExclusiveGPUs(ctx context.Context) (map[gpu.PCIAddress]bool, error)
	// KeptPartitions returns the UUIDs of the MIG devices that stay without claims.
	KeptPartitions(ctx context.Context) (map[string]bool, error)
}

// claimsTime is how long changes of held devices are gathered. They matter only
// for devices that the node no longer offers.
const claimsTime = time.Second

// orderTime is the least time between changes of the order of devices: each makes the
// scheduler try all pending pods with claims again.
const orderTime = 30 * time.Second

// Ledger is the writer of [state.State.Claimed]. Its methods may be called from any goroutine.
type Ledger struct {
	claims Claims
	table  *state.Table[state.Claimed]
	clock  clock.Clock
	// stale has an item if a claim has changed since the last read. unordered has one if the
	// order of devices is of other claims.
	stale, unordered chan struct{}

	reading sync.Mutex // one read at a time, so that the last one is written last
	// running is set once Run runs. If reorder is set, the next read changes the order of
	// devices; before Run runs, each read does. Both are guarded by reading.
	running, reorder bool

	mu sync.Mutex
	// unneeded are the claims that the API did not need at its last answer. refused are
	// the claims that could not be unprepared because of their processes.
	unneeded, refused map[types.UID]bool
	// foreign are the devices on which a pod without a claim computed in the last round.
	foreign map[kind.Name]bool
}

// New returns the writer of the table.
func New(claims Claims, table *state.Table[state.Claimed], c clock.Clock) *Ledger {
	return &Ledger{
		claims: claims, table: table, clock: c, stale: make(chan struct{}, 1), unordered: make(chan struct{}, 1), reorder: true,
		unneeded: map[types.UID]bool{}, refused: map[types.UID]bool{},
	}
}

// Run reads the claims after they have changed, until ctx ends.
func (l *Ledger) Run(ctx context.Context) {
	l.set(&l.running)
	var gathered, ordered <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.stale:
			if gathered == nil {
				gathered = l.clock.After(claimsTime)
			}
		case <-l.unordered:
			if ordered == nil {
				ordered = l.clock.After(orderTime)
			}
		case <-gathered:
			gathered = nil
			l.Read(ctx)
		case <-ordered:
			ordered = nil
			l.set(&l.reorder)
			l.Read(ctx)
		}
	}
}

// set sets a flag that is guarded by reading.
func (l *Ledger) set(flag *bool) {
	l.reading.Lock()
	defer l.reading.Unlock()
	*flag = true
}

// Read reads the claims from the disk, writes the table, and returns its value. If it
// cannot read a value, it keeps the last one.
func (l *Ledger) Read(ctx context.Context) state.Claimed {
	l.reading.Lock()
	defer l.reading.Unlock()
	now := l.table.Get()
	if claims, err := l.claims.Held(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the devices that claims hold, will retry")
	} else {
		now.Held, now.InUse = heldBy(claims), l.inUse(claims)
		switch taken := takenBy(claims); {
		case l.reorder:
			now.Taken, l.reorder = taken, !l.running
		case !maps.Equal(now.Taken, taken):
			notify.Wake(l.unordered)
		}
	}
	keep(ctx, &now.MIGModes, l.claims.SwitchedModes, "Cannot read the MIG modes that claims use, will retry")
	keep(ctx, &now.Exclusive, l.claims.ExclusiveGPUs, "Cannot read the compute modes that claims use, will retry")
	keep(ctx, &now.Kept, l.claims.KeptPartitions, "Cannot read the MIG devices without claims, will retry")
	l.table.Set(now)
	return now
}

// keep replaces a value by what read returns, or logs failure and keeps the value.
func keep[M any](ctx context.Context, value *M, read func(context.Context) (M, error), failure string) {
	now, err := read(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, failure)
		return
	}
	*value = now
}

// Changed makes Run read the claims soon: a claim holds other devices than before.
func (l *Ledger) Changed() { notify.Wake(l.stale) }

// SetContested replaces the findings of the last comparison with the API: claims that hold
// devices which they need or do not need, and processes of pods without a claim. A claim in
// neither list could not be compared, and the last finding about it stays.
func (l *Ledger) SetContested(needed, unneeded []types.UID, foreign []claim.ForeignProcess) {
	l.mu.Lock()
	defer l.Changed()
	defer l.mu.Unlock()
	for _, uid := range needed {
		delete(l.unneeded, uid)
	}
	for _, uid := range unneeded {
		l.unneeded[uid] = true
	}
	l.foreign = map[kind.Name]bool{}
	for _, s := range foreign {
		l.foreign[s.Device] = true
	}
}

// SetRefused sets whether a claim could not be unprepared because of its processes.
func (l *Ledger) SetRefused(uid types.UID, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused {
		l.refused[uid] = true
	} else {
		delete(l.refused, uid)
	}
}

// IsRefused reports whether a claim could not be unprepared because of its processes.
func (l *Ledger) IsRefused(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused[uid]
}

// inUse returns the contested devices. A device ceases to be contested when no claim holds it
// any more.
func (l *Ledger) inUse(held []claim.Claim) catalog.InUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := catalog.InUse{}
	for _, marks := range []map[types.UID]bool{l.unneeded, l.refused} {
		maps.DeleteFunc(marks, func(uid types.UID, _ bool) bool {
			return !slices.ContainsFunc(held, func(h claim.Claim) bool { return h.UID == uid })
		})
	}
	for _, h := range held {
		isUnneeded := l.unneeded[h.UID] || l.refused[h.UID]
		for _, d := range h.Devices {
			switch {
			case !d.Name.OnGPU():
			case isUnneeded:
				now[d.Name] = v1alpha1.InUseTaintUnneededClaim
			case l.foreign[d.Name] && now[d.Name] == "":
				now[d.Name] = v1alpha1.InUseTaintForeignProcess
			}
		}
	}
	return now
}

// heldBy returns the devices of the claims, and for each whether its allocation has a share
// ID.
func heldBy(claims []claim.Claim) catalog.Held {
	held := catalog.Held{}
	for _, c := range claims {
		for _, d := range c.Devices {
			held[d.Name] = held[d.Name] || d.ShareID != nil
		}
	}
	return held
}

// takenBy returns the memory that claims take of devices. It leaves out shares of unknown
// size, of claims without a readable record.
func takenBy(claims []claim.Claim) catalog.Taken {
	taken := catalog.Taken{}
	for _, held := range claims {
		for _, d := range held.Devices {
			if d.Name.Kind.Takes() != kind.TakesMemory || d.Terms.IsUnknown() {
				continue
			}
			taken.Add(d.Name.String(), d.Terms.Share == nil, d.Terms.Memory())
		}
	}
	return taken
}
