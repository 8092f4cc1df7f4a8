// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) usedFlag(flags *pflag.FlagSet) {
	flags.BoolVar(&o.used, "used", false, "read from the agents the memory and multiprocessors that programs use, and the processes without a claim")
}

// readUses reads the use of the claims on the nodes from the agents, if the user requests
// it. Without names it reads from all nodes. It prints a sentence for each agent that does
// not answer.
func (o *options) readUses(ctx context.Context, v *view, nodes []string) (rows.Uses, error) {
	if !o.used {
		return nil, nil
	}
	answers, err := askAgents[agentv1.Report](ctx, o, v, nodes, agentv1.PathClaims)
	if err != nil {
		return nil, err
	}
	return usesOf(answers, func(node string, err error) {
		fmt.Fprintf(o.ErrOut, "node %s: %v\n", node, err) //nolint:errcheck // there is no other place to say so
	}), nil
}

// usesOf returns the reports of the agents that have answered. It calls failed for the others.
func usesOf(answers map[string]doctor.Answer[agentv1.Report], failed func(node string, err error)) rows.Uses {
	all := rows.Uses{}
	for _, node := range slices.Sorted(maps.Keys(answers)) {
		if a := answers[node]; a.Err != nil {
			failed(node, a.Err)
		} else {
			all[node] = *a.Value
		}
	}
	return all
}

// askAgents finds the agents of the nodes and reads a path of each, as queryAgents does.
// Without names it reads from all agents.
func askAgents[T any](ctx context.Context, o *options, v *view, nodes []string, path string) (map[string]doctor.Answer[T], error) {
	if err := o.addAgents(ctx, v); err != nil {
		return nil, err
	}
	if reason := v.pods.Unread[doctor.DriverPods]; reason != "" {
		return nil, fmt.Errorf("query the agents: %w: %s", gpu.ErrPermission, reason)
	}
	return queryAgents[T](ctx, v.client, v.pods, nodes, path)
}

// addAgents reads the driver's pods once, and adds the agents to the view. They are not known
// if the user may not list them.
func (o *options) addAgents(ctx context.Context, v *view) error {
	if v.pods != nil {
		return nil
	}
	c, err := o.driverPods(ctx, v.client)
	if err != nil {
		return err
	}
	v.pods, v.Agents = c, rows.AgentsOf(c, v.Objects.Nodes)
	return nil
}

func noAgentFound(driver string) string {
	return fmt.Sprintf("No agent of the driver %s is found: if it is installed, name its namespace with --driver-namespace.", driver)
}
