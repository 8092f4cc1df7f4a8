package claim

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// holder is a claim that holds devices. Its record is not to be changed: others
// look at it too.
type holder struct {
	*record
	phase Phase
	names []kind.Name // of the record's devices
	stamp store.Stamp // of the record; zero if there is none
}

// began reports whether the claim may have done a step that nobody has undone. A
// claim without a record may have done it for every device that it holds. So may
// one whose record was lost, whatever its plan says now: an agent with other flags
// may have done it.
func (h holder) began(step, device string) bool {
	if h.phase == Unrecorded || h.Adopted {
		if slices.ContainsFunc(h.names, func(n kind.Name) bool {
			whole := n.Kind == kind.GPU || n.Kind == kind.TimeSlice
			return n.String() == device || step == stepSetTimeSlice && whole && n.Address.DeviceName() == device
		}) {
			return true
		}
	}
	return h.phase != Unrecorded &&
		slices.ContainsFunc(h.Journal, func(e entry) bool { return e.Step == step && e.Device == device && e.State != "" })
}

// around is what other claims hold. It is read when it is first asked for, and
// then kept: what it says of a device does not change while the lock of the device
// is held, and what it says of a GPU while the GPU-wide lock is.
type around struct {
	m      *Manager
	claim  types.UID // whose surroundings these are
	all    []holder
	looked bool
	// asked is what the API server said of other claims; nil if it was not asked.
	asked answers
}

// others gives them in the order of [Manager.Held].
func (a *around) others(ctx context.Context) ([]holder, error) {
	if a.looked {
		return a.all, nil
	}
	all, err := a.m.holders(ctx)
	if err != nil {
		return nil, err
	}
	a.all = slices.DeleteFunc(all, func(h holder) bool { return h.Claim.UID == a.claim })
	a.looked = true
	return a.all, nil
}

// forget has it read anew.
func (a *around) forget() { a.all, a.looked = nil, false }

// nobodyElse reports whether no other claim has begun a step about the device.
func (a *around) nobodyElse(ctx context.Context, step, device string) (bool, error) {
	others, err := a.others(ctx)
	return !slices.ContainsFunc(others, func(h holder) bool { return h.began(step, device) }), err
}

// holders gives all claims that hold devices, as the disk has it now, ordered by
// namespace, name and UID.
func (m *Manager) holders(ctx context.Context) ([]holder, error) {
	// Specs before records: in the other order, a claim that is prepared in
	// between would look as if its record were lost.
	specs, err := m.CDI.List(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := m.Records.Keys()
	if err != nil {
		return nil, err
	}
	var all []holder
	recorded := make(map[types.UID]bool)
	for claim, known := range m.glimpsed.look(m, keys) {
		if known.err != nil {
			continue // its spec tells instead, below
		}
		recorded[claim] = true
		if phase := m.phase(known.record); known.record != nil && phase != Outlived {
			all = append(all, holder{record: known.record, phase: phase, names: known.names, stamp: known.stamp})
		}
	}
	for _, claim := range specs {
		if recorded[claim] {
			continue
		}
		h, err := m.witness(ctx, claim)
		if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
			continue // nothing can be told from it, and no container can use it
		}
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name), cmp.Compare(a.Claim.UID, b.Claim.UID))
	})
	return all, nil
}

// witness tells from its CDI spec what a claim without a readable record holds.
func (m *Manager) witness(ctx context.Context, claim types.UID) (holder, error) {
	owner, injections, err := m.CDI.Read(ctx, claim)
	if err != nil {
		return holder{}, err
	}
	h := holder{phase: Unrecorded, record: &record{Claim: Ref{Namespace: owner.Namespace, Name: owner.Name, UID: claim}}}
	for _, in := range injections {
		device, shareID, part := strings.Cut(strings.TrimPrefix(in.ID, injectionID(claim, "", "")), shareSeparator)
		name, err := kind.Parse(device)
		if err != nil {
			continue
		}
		a := allocated{Device: device}
		if part {
			a.ShareID = (*types.UID)(&shareID)
			if name.Kind != kind.TimeSlice {
				a.Share = &share{}
			}
		}
		h.Devices, h.names = append(h.Devices, a), append(h.names, name)
		if name.Kind == kind.MIG {
			h.Journal = append(h.Journal, witnessedPartition(device, in.Annotations[annotationPartition]))
		}
	}
	return h, nil
}

// lost tells from its CDI spec what a claim holds if it has no record; nothing
// where there is no spec to tell.
func (m *Manager) lost(ctx context.Context, claim types.UID, r *record) (holder, error) {
	if r == nil {
		h, err := m.witness(ctx, claim)
		if !errors.Is(err, gpu.ErrNotFound) && !errors.Is(err, gpu.ErrCorrupt) {
			return h, err
		}
	}
	return holder{record: &record{}, phase: Absent}, nil
}

// settled is the age at which a record's stamp is good for ever: file systems
// count time in ticks of up to 10 ms, and a file that is replaced within one
// tick can look like the one before.
const settled = 50 * time.Millisecond

// glimpses are records as they were last read, to look at only: one that has
// its stamp still need not be read and decoded again. What is on the disk stays
// the truth, whichever process writes it.
type glimpses struct {
	mu    sync.Mutex
	known map[types.UID]glimpse
}

type glimpse struct {
	stamp  store.Stamp
	record *record // nil if it is gone
	names  []kind.Name
	err    error // why it cannot be used
}

// look gives the records of the keys, and forgets all others.
func (g *glimpses) look(m *Manager, keys []string) map[types.UID]glimpse {
	g.mu.Lock()
	known := g.known
	g.mu.Unlock()
	seen, keep := make(map[types.UID]glimpse, len(keys)), make(map[types.UID]glimpse, len(keys))
	for _, key := range keys {
		claim := types.UID(key)
		stamp, err := m.Records.Stamp(key)
		if errors.Is(err, fs.ErrNotExist) {
			seen[claim] = glimpse{}
			continue
		}
		now, ok := known[claim]
		if err != nil || !ok || now.stamp != stamp {
			now = glimpse{stamp: stamp}
			if now.record, now.err = m.read(claim); now.record != nil {
				now.names, now.err = now.record.names()
			}
		}
		seen[claim] = now
		if err == nil && now.err == nil && time.Since(stamp.Modified()) > settled {
			keep[claim] = now
		}
	}
	g.mu.Lock()
	g.known = keep
	g.mu.Unlock()
	return seen
}
