// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"maps"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// uiSource reads the cluster for the pages.
type uiSource struct {
	reader
	o *options
}

// Read implements [pages.Source]. It reads the driver's pods too: without an agent, the health of
// a GPU is not known.
func (s uiSource) Read(ctx context.Context) (*rows.Cluster, error) {
	cluster, err := s.readWithClaims(ctx, doctor.Slices)
	if err != nil {
		return nil, err
	}
	v := &view{Cluster: cluster, reader: s.reader}
	if err := s.o.addAgents(ctx, v); err != nil {
		return nil, err
	}
	if reason := v.pods.Unread[doctor.DriverPods]; reason != "" {
		cluster.Refused[doctor.DriverPods] = reason + " Whether the agents run is not known: the health of GPUs is as their nodes last published it."
	}
	if cluster.NoAgents() {
		cluster.Refused[doctor.DriverPods] = noAgentFound(s.o.driver)
	}
	return cluster, nil
}

// Inspect implements [pages.Source].
func (s uiSource) Inspect(ctx context.Context, cluster *rows.Cluster) (pages.Inspection, error) {
	refused := maps.Clone(cluster.Refused)
	delete(refused, doctor.DriverPods) // examine reads them itself, and without an agent the list is known
	c, err := s.o.examine(ctx, s.client, cluster.Objects, refused, nil)
	if err != nil {
		return pages.Inspection{}, err
	}
	found := pages.Inspection{Findings: doctor.Examine(c)}
	// The findings say so if no agent can be queried.
	answers, _ := queryAgents[agentv1.Report](ctx, s.client, c, nil, agentv1.PathClaims)
	found.Uses = usesOf(answers, func(node string, err error) {
		found.Problems = append(found.Problems, fmt.Sprintf("The use on node %s is not known: %v.", node, err))
	})
	return found, nil
}
