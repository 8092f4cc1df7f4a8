// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// reading is the cluster at one time.
type reading struct {
	*rows.Cluster
	at time.Time
	// nodes are the ones of the fleet, and rows are theirs.
	nodes []fleet.Node
	rows  []rows.Node
	// places are the names of the GPUs, by node and device.
	places map[string]map[string]string
	// claims are by namespace/name.
	claims map[string]*resourceapi.ResourceClaim
	// waiting are the pods that wait for devices of the driver.
	waiting []*corev1.Pod
	// inspection is the last one, and inspectionFailure the error of the last attempt. Both are
	// of the request for a page.
	inspection        *Inspection
	inspectionFailure error
}

func newReading(c *rows.Cluster, at time.Time) *reading {
	nodes := c.Nodes()
	r := &reading{Cluster: c, at: at, nodes: nodes, rows: c.NodeRows(nodes), claims: map[string]*resourceapi.ResourceClaim{}, places: map[string]map[string]string{}}
	for _, node := range nodes {
		r.places[node.Name] = map[string]string{}
		for _, g := range node.GPUs {
			r.places[node.Name][g.Name] = g.Name
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

// newReadings returns the readings of the cluster.
func newReadings(read func(context.Context) (*rows.Cluster, error), fresh time.Duration) *poll[reading] {
	return newPoll(func(ctx context.Context) (*reading, error) {
		begin := time.Now()
		c, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return newReading(c, begin), nil
	}, fresh, idleRatio)
}
