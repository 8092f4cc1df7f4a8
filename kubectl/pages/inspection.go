// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

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

// newInspections returns the inspections of the cluster of the last reading. Pages that are
// open show each of them.
func (s *Site) newInspections(fresh time.Duration) *poll[Inspection] {
	p := newPoll(func(ctx context.Context) (*Inspection, error) {
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
	}, fresh, inspectionRatio)
	p.after = s.live.tell
	return p
}

// count returns the numbers of the findings in each state.
func (i *Inspection) count() map[doctor.State]int {
	numbers := map[doctor.State]int{}
	if i != nil {
		for _, f := range i.Findings {
			numbers[f.State]++
		}
	}
	return numbers
}

// uses returns the use that agents report; nil without any.
func (r *reading) uses() rows.Uses {
	if r.inspection == nil || len(r.inspection.Uses) == 0 {
		return nil
	}
	return r.inspection.Uses
}
