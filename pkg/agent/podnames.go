// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

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
)

// podNames are the names of the pods that claims are reserved for. They are kept from the
// claims that pass by, and read from the API server only for a pod that is not known: after
// a restart of the agent, or if the pod joined the claim later.
type podNames struct {
	// get reads a claim; it returns nil if the claim is gone.
	get   func(ctx context.Context, ref claim.Ref) (*resourceapi.ResourceClaim, error)
	clock clock.PassiveClock

	mu sync.Mutex
	// byClaim has the names of a claim's pods by the UIDs of both.
	byClaim map[types.UID]map[types.UID]string
	// attempts has the unknown pods for which claims were read, and when to try again; the
	// zero time for never.
	attempts map[types.UID]time.Time
}

func newPodNames(c clock.PassiveClock, get func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error)) *podNames {
	return &podNames{get: get, clock: c, byClaim: map[types.UID]map[types.UID]string{}, attempts: map[types.UID]time.Time{}}
}

// observe keeps the names of a claim's pods.
func (p *podNames) observe(object *resourceapi.ResourceClaim) {
	names := map[types.UID]string{}
	for _, consumer := range object.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			names[consumer.UID] = consumer.Name
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byClaim[object.UID] = names
}

// forget drops the names of a claim's pods.
func (p *podNames) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byClaim, uid)
}

// of returns the names of the pods of each claim. seen are the pods that were seen on each
// GPU. It forgets claims that are not held.
func (p *podNames) of(ctx context.Context, held []claim.Held, seen map[gpu.PCIAddress][]types.UID) (map[types.UID]map[types.UID]string, error) {
	err := p.read(ctx, p.unknown(held, seen))
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[types.UID]map[types.UID]string, len(held))
	for _, c := range held {
		names[c.UID] = p.byClaim[c.UID] // never changed
	}
	return names, err
}

// unknown returns the claims to read for each pod that is not known.
func (p *podNames) unknown(held []claim.Held, seen map[gpu.PCIAddress][]types.UID) map[types.UID][]claim.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, attempts := map[types.UID]bool{"": true}, map[types.UID]time.Time{}
	for uid, pods := range p.byClaim {
		if !slices.ContainsFunc(held, func(c claim.Held) bool { return c.UID == uid }) {
			delete(p.byClaim, uid)
			continue
		}
		for pod := range pods {
			known[pod] = true
		}
	}
	read := map[types.UID][]claim.Ref{}
	for address, pods := range seen {
		for _, pod := range pods {
			if known[pod] {
				continue
			}
			retry, before := p.attempts[pod]
			if before && (retry.IsZero() || p.clock.Now().Before(retry)) {
				attempts[pod] = retry
				continue
			}
			attempts[pod] = p.clock.Now().Add(podNamesPause)
			known[pod] = true
			read[pod] = holdersOf(held, address, pod)
		}
	}
	p.attempts = attempts
	return read
}

// holdersOf returns the claims on a GPU that a pod may use: the one that was prepared for
// it, or else all.
func holdersOf(held []claim.Held, address gpu.PCIAddress, pod types.UID) (all []claim.Ref) {
	for _, c := range held {
		if slices.Contains(c.Pods, pod) {
			return []claim.Ref{c.Ref}
		}
		if slices.ContainsFunc(c.Devices, func(d claim.Device) bool { return d.Address == address }) {
			all = append(all, c.Ref)
		}
	}
	return all
}

// read reads the claims of each pod.
func (p *podNames) read(ctx context.Context, pods map[types.UID][]claim.Ref) error {
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
	var reads sync.WaitGroup
	slots := make(chan struct{}, podNamesReads)
	for i, ref := range refs {
		slots <- struct{}{}
		reads.Go(func() {
			defer func() { <-slots }()
			object, err := p.get(ctx, ref)
			if object != nil && err == nil {
				p.observe(object)
			}
			failed[i] = err
		})
	}
	reads.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for pod, of := range pods {
		if !slices.ContainsFunc(of, func(ref claim.Ref) bool { return failed[slices.Index(refs, ref)] != nil }) {
			p.attempts[pod] = time.Time{}
		}
	}
	return errors.Join(failed...)
}
