// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
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
func (c *Config) usageOptions(ctx context.Context, h host, held claims, accounts attribution.Accounts) attribution.Options {
	if err := cgroup.CheckComplete(); err != nil && c.checkMemoryLimits(h.hardware) == nil {
		klog.FromContext(ctx).Info("Cannot read the GPU memory of limited containers", "err", err)
	}
	o := attribution.Options{
		Claims: held, Limits: containerlimits.Folder(h.home.Limits()), GPUs: h.hardware, Proc: "/", Pods: accounts.Pods,
		Node: accounts.Node, Clock: c.clock(),
	}
	if h.podResources != nil {
		o.Containers, o.ContainerClaims = h.podResources.Containers, h.podResources.Claims
	}
	return o
}

// chargedNode returns the capacities of the node that claims can hold.
func chargedNode(now state.Snapshot, published *controller.Controller) usage.Node {
	node := usage.Node{Published: published.Capacities(), GPUs: make(map[gpu.PCIAddress]usage.GPU, len(now.Hardware.GPUs))}
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
	if p := a.serving.plugin.get(); p != nil {
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
	report, err := a.observers.usage.Read(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read what some claims use", "err", err)
	}
	report.Foreign = a.observers.foreign.Last()
	return report
}
