// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

// reading is the cluster at one time.
type reading struct {
	*gpurows.Cluster
	at time.Time
	// nodes are the ones of the fleet, and rows are theirs.
	nodes []fleet.Node
	rows  []gpurows.Node
	// places are the names of the GPUs, by node and device.
	places map[string]map[string]string
	// claims are by namespace/name.
	claims map[string]*resourceapi.ResourceClaim
	// waiting are the pods that wait for devices of the driver.
	waiting []*corev1.Pod
}

func newReading(c *gpurows.Cluster, at time.Time) *reading {
	nodes := c.Nodes()
	r := &reading{Cluster: c, at: at, nodes: nodes, rows: gpurows.Nodes(nodes), claims: map[string]*resourceapi.ResourceClaim{}, places: map[string]map[string]string{}}
	for _, node := range nodes {
		r.places[node.Name] = map[string]string{}
		for _, g := range node.GPUs {
			for _, d := range g.Devices {
				r.places[node.Name][d.ID.Device] = g.Name
			}
		}
	}
	for _, claim := range c.Objects.Claims {
		r.claims[claim.Namespace+"/"+claim.Name] = claim
	}
	r.waiting = slices.DeleteFunc(slices.Clone(c.Objects.Pods), func(pod *corev1.Pod) bool { return !r.isWaiting(pod) })
	return r
}

// readings reads the cluster for all pages together: one reading at a time, and none while
// no page requests one.
type readings struct {
	read func(context.Context) (*gpurows.Cluster, error)
	// fresh is the age up to which a reading is used again.
	fresh time.Duration

	wanted chan struct{}

	mu sync.Mutex
	// last is the last reading that has not failed; nil if there is none.
	last *reading
	// failure is the error of the last attempt.
	failure error
	// next is the time before which no attempt begins.
	next time.Time
	// changed is closed when an attempt has ended.
	changed chan struct{}
}

const (
	// readTimeout bounds an attempt.
	readTimeout = time.Minute
	// patience is the time after which a page shows an older reading.
	patience = 3 * time.Second
	// idleRatio is the time between readings, as a multiple of a reading's duration. So a
	// page costs a slow API server little.
	idleRatio = 4
)

func newReadings(read func(context.Context) (*gpurows.Cluster, error), fresh time.Duration) *readings {
	return &readings{read: read, fresh: fresh, wanted: make(chan struct{}, 1), changed: make(chan struct{})}
}

// run reads the cluster when pages want it, until ctx ends.
func (r *readings) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wanted:
		}
		if r.isFresh() {
			continue
		}
		r.attempt(ctx)
	}
}

func (r *readings) isFresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.next)
}

func (r *readings) attempt(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := time.Now()
	c, err := r.read(limited)
	var found *reading
	if err == nil {
		found = newReading(c, begin)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure = err; err == nil {
		r.last = found
	}
	now := time.Now()
	r.next = now.Add(max(r.fresh, idleRatio*now.Sub(begin)))
	close(r.changed)
	r.changed = make(chan struct{})
}

// get returns a fresh reading, or the last one if the API server is slow or fails. It
// returns nil if there is none. The error is the one of the last attempt.
func (r *readings) get(ctx context.Context) (*reading, error) {
	r.mu.Lock()
	last, failure, changed, fresh := r.last, r.failure, r.changed, time.Now().Before(r.next)
	r.mu.Unlock()
	if fresh {
		return last, failure
	}
	select {
	case r.wanted <- struct{}{}:
	default: // an attempt begins soon
	}
	var enough <-chan time.Time
	if last != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-changed:
	case <-enough:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.failure
}
