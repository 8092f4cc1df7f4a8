// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// usagePatience is the timeout of reading the use of claims. It is longer than that of one
// reading, and shorter than that of a scrape.
const usagePatience = 5 * time.Second

// usageOptions returns the options for the reader of the use of claims. It logs if the agent
// cannot see the cgroups of containers: the reader finds no limited containers then.
func (a *agent) usageOptions(ctx context.Context, hw *hardware) attribution.Options {
	if err := cgroup.CheckComplete(); err != nil && a.checkMemoryLimits(hw) == nil {
		klog.FromContext(ctx).Info("Cannot read the GPU memory of limited containers", "err", err)
	}
	o := attribution.Options{
		Claims: a.claims, Limits: containerlimits.Folder(a.home.Limits()), GPUs: hw, Proc: "/", Pods: a.accounts.Pods,
		Node: a.chargedNode, Clock: clock.RealClock{},
	}
	if a.podResources != nil {
		o.Containers, o.ContainerClaims = a.podResources.Containers, a.podResources.Claims
	}
	return o
}

// chargedNode returns the capacities of the node that claims can hold.
func (a *agent) chargedNode() usage.Node {
	now := a.state.Snapshot()
	node := usage.Node{Published: a.controller.Capacities(), GPUs: make(map[gpu.PCIAddress]usage.GPU, len(now.Hardware.GPUs))}
	health := now.Health()
	for i, g := range now.Node().GPUs {
		node.GPUs[g.Address] = usage.NewGPU(g, health[i].Healthy)
	}
	return node
}

// foreignPatience is the timeout of looking for foreign processes for a viewer. After it the
// viewer gets the last findings, with their time.
const foreignPatience = 2 * time.Second

// viewedUsage returns the use of the node's claims for a viewer, with the foreign processes of now.
func (a *agent) viewedUsage(ctx context.Context) agentv1.Report {
	if p := a.kubelet.now(); p != nil {
		limited, cancel := context.WithTimeout(ctx, foreignPatience)
		defer cancel()
		p.CheckForeign(limited)
	}
	return a.readUsage(ctx)
}

// claimUsage returns the use of the node's claims for the metrics.
func (a *agent) claimUsage() agentv1.Report { return a.readUsage(context.Background()) }

// readUsage returns the use of the node's claims now.
func (a *agent) readUsage(ctx context.Context) agentv1.Report {
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	report, err := a.usage.Read(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read what some claims use", "err", err)
	}
	report.Foreign = a.foreign.Last()
	return report
}
