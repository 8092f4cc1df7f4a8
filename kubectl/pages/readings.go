// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// reading is the cluster at one time.
type reading struct {
	*rows.Cluster
	at    time.Time
	nodes []fleet.Node
	// waiting are the pods that wait for devices of the driver.
	waiting []*corev1.Pod
	// inspection is the last one, and inspectionFailure the error of the last attempt. Both are set
	// on the copy that one page request gets.
	inspection        *Inspection
	inspectionFailure error
}

func newReading(c *rows.Cluster, at time.Time) *reading {
	r := &reading{Cluster: c, at: at, nodes: c.Nodes()}
	r.waiting = slices.DeleteFunc(slices.Clone(c.Objects.Pods), func(pod *corev1.Pod) bool { return !r.isWaiting(pod) })
	return r
}

// newReadings returns the readings of the cluster.
func newReadings(read func(context.Context) (*rows.Cluster, error), fresh time.Duration) *poll[reading] {
	return &poll[reading]{fresh: fresh, ratio: idleRatio, read: func(ctx context.Context) (*reading, error) {
		begin := time.Now()
		c, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return newReading(c, begin), nil
	}}
}

// Inspection is the findings about a cluster, and the use that its agents report.
type Inspection struct {
	Findings []doctor.Finding
	// Uses has the reports of the agents that have answered.
	Uses rows.Uses
	// Problems are the reasons why reports are missing, a sentence each.
	Problems []string
	at       time.Time
}

const (
	// inspectionRatio is the ratio of inspections. Each queries all agents.
	inspectionRatio = 10
	// leastInspection is the least time between two inspections.
	leastInspection = 15 * time.Second
)

// newInspections returns the inspections of the cluster of the last reading.
func (s *Site) newInspections(fresh time.Duration) *poll[Inspection] {
	return &poll[Inspection]{fresh: fresh, ratio: inspectionRatio, read: func(ctx context.Context) (*Inspection, error) {
		r, err := s.readings.get(ctx)
		if r == nil {
			return nil, err
		}
		found, err := s.source.Inspect(ctx, r.Cluster)
		if err != nil {
			return nil, fmt.Errorf("inspect the cluster: %w", err)
		}
		found.at = r.at
		return &found, nil
	}}
}

// urgent returns the number of problems and warnings, and the state of the most urgent one.
func (i *Inspection) urgent() (number int, state doctor.State) {
	state = doctor.Warning
	if i == nil {
		return 0, state
	}
	for _, f := range i.Findings {
		if f.State == doctor.Problem {
			state = doctor.Problem
		}
		if f.State == doctor.Problem || f.State == doctor.Warning {
			number++
		}
	}
	return number, state
}

// uses returns the use that agents report; nil without any.
func (r *reading) uses() rows.Uses {
	if r.inspection == nil || len(r.inspection.Uses) == 0 {
		return nil
	}
	return r.inspection.Uses
}
