// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// podNamesPatience is the timeout of reading claims for the names of pods, a few at
	// the same time. After a failure the pods keep their UIDs as names for podNamesPause.
	podNamesPatience, podNamesReads = 2 * time.Second, 8
	podNamesPause                   = time.Minute
	// never is the pause before claims without the name of a pod are read again for it.
	never = 100 * 365 * 24 * time.Hour
)

// Pods are the names of the pods that claims are reserved for. They are kept from the
// claims that pass by, and read from the API server only for a pod that is not known: after
// a restart of the agent, or if the pod joined the claim later. The pods of a PodGroup are
// not in its claims; the kernel shows them, without names.
type Pods struct {
	get       func(ctx context.Context, ref claim.Ref) (*resourceapi.ResourceClaim, error)
	consumers func(claims []claim.Ref) (map[types.UID][]types.UID, error)
	clock     clock.PassiveClock

	mu sync.Mutex
	// byClaim has the names of a claim's pods by the UIDs of both.
	byClaim map[types.UID]map[types.UID]string
	// nameless are pods of claims that are not reserved for the pods themselves, but for
	// their PodGroup.
	nameless map[types.UID][]types.UID
	// missing has the pods that no claim has, and when to read the kernel again. unnamed has
	// the pods without a name, and when to read claims again for theirs.
	missing, unnamed map[types.UID]time.Time
}

// NewPods returns the names. get reads a claim, and returns nil if it is gone; consumers
// reads the pods on the node with devices of each claim.
func NewPods(c clock.PassiveClock, get func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error),
	consumers func([]claim.Ref) (map[types.UID][]types.UID, error),
) *Pods {
	return &Pods{
		get: get, consumers: consumers, clock: c,
		byClaim: map[types.UID]map[types.UID]string{}, nameless: map[types.UID][]types.UID{},
	}
}

// Observe keeps the names of a claim's pods.
func (p *Pods) Observe(object *resourceapi.ResourceClaim) {
	names := map[types.UID]string{}
	for _, pod := range claim.ReservedPods(object) {
		names[pod.UID] = pod.Name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byClaim[object.UID] = names
}

// Forget drops the names of a claim's pods.
func (p *Pods) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byClaim, uid)
	delete(p.nameless, uid)
}

// namesOf returns the names of a claim's pods. It reads the claim from the API server if they are not
// known, as after a restart of the agent.
func (p *Pods) namesOf(ctx context.Context, ref claim.Ref) map[types.UID]string {
	known := func() (names map[types.UID]string, found bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		names, found = p.byClaim[ref.UID] // never changed
		return names, found
	}
	if _, found := known(); !found {
		limited, cancel := context.WithTimeout(ctx, podNamesPatience)
		defer cancel()
		if object, err := p.get(limited, ref); object != nil && err == nil {
			p.Observe(object)
		}
	}
	names, _ := known()
	return names
}

// namesByClaim returns the names of the pods of each claim; empty for a pod without a known name.
// seen are the pods that were seen on each GPU. It forgets claims that are not held.
func (p *Pods) namesByClaim(ctx context.Context, held []claim.Claim, seen map[gpu.PCIAddress][]types.UID) (map[types.UID]map[types.UID]string, error) {
	err := errors.Join(p.read(ctx, p.unknown(held, seen)), p.readNameless(held, seen))
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[types.UID]map[types.UID]string, len(held))
	for _, c := range held {
		known := p.byClaim[c.UID] // never changed
		if nameless := p.nameless[c.UID]; len(nameless) > 0 {
			all := map[types.UID]string{}
			for _, pod := range nameless {
				all[pod] = ""
			}
			maps.Copy(all, known)
			known = all
		}
		names[c.UID] = known
	}
	return names, err
}

// readNameless reads the pods of all claims from the kernel if an unknown pod was seen.
// Neither a record nor a claim has that pod.
func (p *Pods) readNameless(held []claim.Claim, seen map[gpu.PCIAddress][]types.UID) error {
	if !p.isMissing(held, seen) {
		return nil
	}
	refs := make([]claim.Ref, len(held))
	for i, c := range held {
		refs[i] = c.Ref
	}
	found, err := p.consumers(refs)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nameless = found
	return nil
}

// isMissing reports whether a pod was seen that no claim has. It returns false if the
// kernel was read for it a short time ago.
func (p *Pods) isMissing(held []claim.Claim, seen map[gpu.PCIAddress][]types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[types.UID]bool{"": true}
	for _, c := range held {
		for _, pod := range slices.Concat(c.Pods, slices.Collect(maps.Keys(p.byClaim[c.UID])), p.nameless[c.UID]) {
			known[pod] = true
		}
	}
	unread, next := p.due(p.missing, known, seen)
	p.missing = next
	return len(unread) > 0
}

// due returns the pods that were seen, are not known and are to be looked up now, with a GPU. It
// also returns when to look up each of the others again. before is that time until now. Callers
// hold mu.
func (p *Pods) due(before map[types.UID]time.Time, known map[types.UID]bool, seen map[gpu.PCIAddress][]types.UID) (now map[types.UID]gpu.PCIAddress, next map[types.UID]time.Time) {
	now, next = map[types.UID]gpu.PCIAddress{}, map[types.UID]time.Time{}
	for address, pods := range seen {
		for _, pod := range pods {
			if known[pod] {
				continue
			}
			if next[pod] = before[pod]; !p.clock.Now().Before(before[pod]) {
				now[pod], next[pod] = address, p.clock.Now().Add(podNamesPause)
			}
		}
	}
	return now, next
}

// unknown returns the claims to read for each pod that is not known.
func (p *Pods) unknown(held []claim.Claim, seen map[gpu.PCIAddress][]types.UID) map[types.UID][]claim.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[types.UID]bool{"": true}
	isHeld := func(uid types.UID) bool {
		return slices.ContainsFunc(held, func(c claim.Claim) bool { return c.UID == uid })
	}
	maps.DeleteFunc(p.nameless, func(uid types.UID, _ []types.UID) bool { return !isHeld(uid) })
	maps.DeleteFunc(p.byClaim, func(uid types.UID, _ map[types.UID]string) bool { return !isHeld(uid) })
	for _, pods := range p.byClaim {
		for pod := range pods {
			known[pod] = true
		}
	}
	unread, next := p.due(p.unnamed, known, seen)
	p.unnamed = next
	read := map[types.UID][]claim.Ref{}
	for pod, address := range unread {
		read[pod] = holdersOf(held, address, pod)
	}
	return read
}

// holdersOf returns the claims on a GPU that a pod may use: the one that was prepared for
// it, or else all.
func holdersOf(held []claim.Claim, address gpu.PCIAddress, pod types.UID) (all []claim.Ref) {
	for _, c := range held {
		if slices.Contains(c.Pods, pod) {
			return []claim.Ref{c.Ref}
		}
		if slices.ContainsFunc(c.Devices, func(d claim.Device) bool { return d.Name.Address == address }) {
			all = append(all, c.Ref)
		}
	}
	return all
}

// read reads the claims of each pod.
func (p *Pods) read(ctx context.Context, pods map[types.UID][]claim.Ref) error {
	if len(pods) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podNamesPatience)
	defer cancel()
	var refs []claim.Ref
	for _, of := range pods {
		for _, ref := range of {
			if !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	failed := make([]error, len(refs))
	var reads errgroup.Group
	reads.SetLimit(podNamesReads)
	for i, ref := range refs {
		reads.Go(func() error {
			object, err := p.get(ctx, ref)
			if object != nil && err == nil {
				p.Observe(object)
			}
			failed[i] = err
			return nil
		})
	}
	_ = reads.Wait() // the errors are in failed
	p.mu.Lock()
	defer p.mu.Unlock()
	for pod, of := range pods {
		if !slices.ContainsFunc(of, func(ref claim.Ref) bool { return failed[slices.Index(refs, ref)] != nil }) {
			p.unnamed[pod] = p.clock.Now().Add(never)
		}
	}
	return errors.Join(failed...)
}
