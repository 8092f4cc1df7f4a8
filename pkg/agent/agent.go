// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/reconcile"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/livefile"
)

const (
	// recoverPatience is how long serving waits for claims of an earlier process to
	// be recovered. Claims on a GPU that hangs take longer, and must not delay the
	// pods of other GPUs.
	recoverPatience = 1500 * time.Millisecond
	// recoverLimit is how long recovering goes on while the agent serves. The
	// reconciliation recovers the claims that are left.
	recoverLimit = 2 * time.Minute
)

// Run runs an agent until ctx ends, and then returns nil. It returns an error if the
// agent cannot go on.
func Run(ctx context.Context, c *Config) error {
	client, err := c.newClient()
	if err != nil {
		return err
	}
	return runWith(ctx, c, client)
}

// runWith is Run with a client for the API server.
func runWith(ctx context.Context, c *Config, client kubernetes.Interface) (err error) {
	klog.FromContext(ctx).Info("Starting", "version", version.Get().GitVersion, "node", c.NodeName, "driverRoot", c.DriverRoot, "driver", c.DriverName)
	if c.UnknownAttributes != nil {
		klog.FromContext(ctx).Error(c.UnknownAttributes, "Publishing without unknown attributes")
	}
	hw := openHardware(c)
	defer func() { err = errors.Join(err, hw.close()) }() //nolint:contextcheck // closing comes after ctx has ended
	a, err := newAgent(ctx, c, hw, client)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// agent is the parts of an agent, by the stage in which they are made.
type agent struct {
	*Config
	node      host
	known     knowledge
	claims    claims
	observers observers
	serving   serving
}

// newAgent puts an agent together, in stages of which each uses the ones before. The agent
// holds its home from then on, until it has run.
func newAgent(ctx context.Context, c *Config, hw *hardware, client kubernetes.Interface) (*agent, error) {
	node, err := openNode(ctx, c, hw, client)
	if err != nil {
		return nil, err
	}
	known := newKnowledge(c, node)
	held, err := newClaims(ctx, c, node, known)
	if err != nil {
		return nil, errors.Join(err, node.home.Close())
	}
	return &agent{c, node, known, held, newObservers(ctx, c, node, known, held), newServing(c, held)}, nil
}

// run starts the parts in the order in which they need each other. All parts end with the
// context, and calls of the kubelet are finished after that. Claims of an earlier process are
// recovered before the kubelet can send new ones, unless that takes long.
func (a *agent) run(parent context.Context) error {
	var parts sync.WaitGroup
	idle := true
	defer func() { a.leave(context.WithoutCancel(parent), idle) }()
	defer a.close()
	defer parts.Wait()
	ctx, fatal := context.WithCancelCause(parent)
	defer fatal(nil)
	if a.OnEnd != nil {
		context.AfterFunc(ctx, a.OnEnd)
	}

	if a.CDIHook != "" {
		a.checkHook(ctx)
	}
	if a.HTTPListen != "" {
		wait, err := telemetry.Serve(ctx, a.HTTPListen, a.handler(), fatal)
		if err != nil {
			return fmt.Errorf("--http-listen=%s: %w", a.HTTPListen, err)
		}
		parts.Go(wait)
	}
	parts.Go(func() { a.known.inventory.Run(ctx, a.claims.ledger) })
	parts.Go(func() { a.serveMemoryHooks(ctx) })
	parts.Go(func() { a.restoreHooks(ctx) })
	parts.Go(func() { cluster.WatchNode(a.node.client, a.NodeName)(ctx, a.setNode) })

	if a.NodeConfigs != "" {
		parts.Go(func() {
			livefile.Follow(ctx, a.NodeConfigs, func(content []byte, err error) { a.known.nodeConfig.SetNamed(a.parseNodeConfigs(content, err)) })
		})
	}
	if a.MIGLayouts != "" {
		parts.Go(func() {
			livefile.Follow(ctx, a.MIGLayouts, func(content []byte, err error) { a.known.nodeConfig.SetLayouts(a.parseLayouts(content, err)) })
		})
	}

	recovered := make(chan struct{})
	parts.Go(func() { defer close(recovered); a.recover(ctx) })
	select {
	case <-recovered:
	case <-time.After(recoverPatience):
		klog.FromContext(ctx).Info("Serving before every claim is recovered", "after", recoverPatience)
	case <-ctx.Done():
	}
	if !a.TakeOver {
		a.serving.rivals.Wait(ctx)
	}
	parts.Go(func() { a.serving.rivals.Run(ctx) })
	if ctx.Err() == nil {
		p, err := a.serve(ctx, fatal)
		if err != nil {
			return err
		}
		parts.Go(func() { a.known.features.Run(ctx) })
		parts.Go(func() { a.claims.ledger.Run(ctx) })
		parts.Go(func() { a.known.nodeConfig.Run(ctx, a.known.state, a.claims.ledger) })
		parts.Go(func() { a.observers.controller.Run(ctx, p.Publish) })
		<-ctx.Done()
		klog.FromContext(ctx).Info("Stopping", "why", context.Cause(ctx))
		idle = p.Stop() //nolint:contextcheck // its limits are its own: ctx has ended
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// removeLeftovers removes the files of agents that were killed. No other agent runs
// on the node.
func removeLeftovers(ctx context.Context, c *Config) {
	if err := place.RemoveLeftovers(ctx, c.place()); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove files of killed agents, will retry")
	}
}

// leave gives up the home, at the very end: this agent writes nothing there any
// more, unless a call hangs.
func (a *agent) leave(ctx context.Context, idle bool) {
	idle = idle && !isInstalled(ctx, a.node.client, a.DaemonSet)
	err := a.node.home.Leave(func() (bool, error) {
		held, err := a.claims.Held(ctx)
		if !idle || len(held) > 0 || err != nil {
			return true, err
		}
		return false, place.RemoveMetadata(a.place())
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the agent's folder, the next agent will retry")
	}
}

// recover brings the claims of an earlier process to a known state. Claims for which
// this fails keep their devices, and must not delay the others.
func (a *agent) recover(ctx context.Context) {
	logger := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	report, err := reconcile.Recover(limited, a.claims, a.claims.ledger, a.known.inventory)
	if err != nil {
		logger.Error(err, "Cannot recover every claim, will retry", "after", a.ReconcileInterval)
	}
	logger.Info("Recovered claims", "verified", len(report.Verified), "undone", len(report.Undone),
		"forgotten", len(report.Forgotten), "quarantined", len(report.Quarantined), "unrecorded", len(report.Unrecorded), "busy", len(report.Busy))
}

// serve starts to serve the kubelet.
func (a *agent) serve(ctx context.Context, fatal func(error)) (*kubelet.Plugin, error) {
	calls := place.NewCalls()
	reporter := report.New(a.reportOptions())
	reconciler := reconcile.New(a.reconcileOptions(reporter, calls))
	p, err := kubelet.Start(ctx, kubelet.Options{
		Place:        a.place(),
		NodeName:     a.NodeName,
		Client:       a.node.client,
		Claims:       a.claims,
		Ledger:       a.claims.ledger,
		Hardware:     a.known.inventory,
		Accounts:     a.observers.accounts,
		Devices:      a.health(),
		Reporter:     reporter,
		Observer:     a.claims.metrics,
		Clock:        a.clock(),
		Calls:        calls,
		Background:   []func(context.Context){reporter.Run, reconciler.Run, reconciler.WatchPods},
		PublishError: a.known.features.HandleError,
		Fatal:        fatal,
	})
	if err != nil {
		return nil, err
	}
	a.serving.plugin.set(&plugin{p, reconciler})
	return p, nil
}

// reportOptions returns the options of the reports to users.
func (a *agent) reportOptions() report.Options {
	return report.Options{
		DriverName: a.DriverName,
		NodeName:   a.NodeName,
		Client:     a.node.client,
		Claims:     a.claims,
		Pods:       a.observers.accounts,
		Observer:   a.claims.metrics,
		Clock:      a.clock(),
		Health:     a.health(),
		Records:    a.node.home.Events,
		Faults:     a.observers.faults,
	}
}

// reconcileOptions returns the options of the reconciliation.
func (a *agent) reconcileOptions(reporter *report.Reporter, calls place.Calls) reconcile.Options {
	o := reconcile.Options{
		Place:     a.place(),
		NodeName:  a.NodeName,
		Client:    a.node.client,
		Claims:    a.claims,
		Ledger:    a.claims.ledger,
		Foreign:   a.observers.foreign,
		Hardware:  a.known.inventory,
		Accounts:  a.observers.accounts,
		Reporter:  reporter,
		Observer:  a.claims.metrics,
		Tasks:     a.serving.rounds,
		Clock:     a.clock(),
		Conflicts: a.conflicts,
		Calls:     calls,
		Interval:  a.ReconcileInterval,
	}
	if a.node.supervisor != nil {
		o.Daemons = a.daemons
	}
	return o
}

// setNode passes what the API server says about the node to the parts that need it.
func (a *agent) setNode(node cluster.Node, err error) {
	if err == nil {
		a.known.inventory.SetDevicePlugin(node.DevicePlugin)
		a.known.inventory.SetRepaired(node.Annotations[v1alpha1.AnnotationRepaired])
		a.known.inventory.SetCordoned(node.Annotations[v1alpha1.AnnotationCordoned])
	}
	a.known.nodeConfig.SetNode(node, err)
}
