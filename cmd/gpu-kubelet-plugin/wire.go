package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
	mpsclient "github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
	"github.com/gpu-dra/gpu-dra-driver/pkg/podresources"
)

const (
	// recoverPatience is how long serving waits for claims of an earlier process to
	// be recovered. Claims on a GPU that hangs take longer, and the pods of the
	// others must not wait for them.
	recoverPatience = 1500 * time.Millisecond
	// recoverLimit is how long recovering goes on beside serving. What is left then
	// is for the reconciliation.
	recoverLimit = 2 * time.Minute
)

// run is the agent: it returns nil when ctx ends and an error when it cannot go
// on.
func run(ctx context.Context, o *options) error {
	client, err := newClient(o.kubeconfig)
	if err != nil {
		return err
	}
	return runWith(ctx, o, client)
}

// runWith is run with a client for the API server.
func runWith(ctx context.Context, o *options, client kubernetes.Interface) (err error) {
	klog.FromContext(ctx).Info("Starting", "version", version.Get().GitVersion, "node", o.nodeName, "hardware", o.hardware, "driver", o.driverName)
	hw, err := openHardware(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hw.close()) }() //nolint:contextcheck // closing comes after ctx has ended
	a, err := newAgent(ctx, o, hw, client)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// agent is the parts of a running agent.
type agent struct {
	*options
	hw     *hardware
	client kubernetes.Interface
	// supervisor of MPS daemons; nil where the node has none.
	supervisor *mpsclient.Client
	// plugins is what the kubelet knows of device plugins; nil where nobody asks.
	plugins    *podresources.Client
	home       *home.Home
	inventory  *inventory.Inventory
	offer      *cluster.Offer
	features   *cluster.Features
	claims     *claim.Manager
	holders    *inventory.Holders
	controller *controller.Controller
	metrics    *plugin.Metrics
	// plugin is set once the kubelet is served, and served closed then.
	plugin *plugin.Plugin
	served chan struct{}
	// What the probes look at.
	scan      *plugin.Activity
	cdiFolder *cdi.Dir
}

// newAgent puts an agent together, which holds its home from then on and until
// it has run.
func newAgent(ctx context.Context, o *options, hw *hardware, client kubernetes.Interface) (_ *agent, err error) {
	a := &agent{options: o, hw: hw, client: client, served: make(chan struct{})}
	a.scan, a.cdiFolder = plugin.NewActivity(clock.RealClock{}, scanStuckAfter), cdi.NewDir(o.cdiDir)
	a.metrics = plugin.NewMetrics(plugin.State{ClaimsHeld: a.claimsHeld, Devices: a.devicesByState, Phases: a.phases})
	known := inventory.Options{
		Hardware: scanned{hw, a.scan}, DriverLoad: hw.machine.DriverLoad, StaticMIG: o.mig.Static, Clock: clock.RealClock{},
	}
	if o.podResources != "" {
		plugins, err := podresources.NewClient(o.podResources)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-pod-resources: %w", err)
		}
		a.plugins, known.External = plugins, plugins
	}
	boot, err := hw.machine.BootID()
	if err != nil {
		return nil, err
	}
	program, err := o.hookToInstall()
	if err != nil {
		return nil, err
	}
	if a.home, err = home.Enter(ctx, o.driverDir(), func() { removeLeftovers(context.WithoutCancel(ctx), o) }); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.home.Close())
		}
	}()
	known.Faults, known.BootID = a.home.Faults, boot
	a.inventory = inventory.New(known)
	a.offer, a.features = cluster.NewOffer(o.offered), cluster.NewFeatures(cluster.ServerVersion(client))
	sources := controller.Sources{Inventory: a.inventory, Offer: a.offer, Features: a.features, Settings: o.catalog()}
	hook := o.cdiHook
	if program != "" {
		if hook, err = a.home.InstallHook(program); err != nil {
			return nil, err
		}
	}
	specs, err := cdi.NewWriter(cdi.Options{
		Dir: o.cdiDir, DriverName: o.driverName, DevRoot: hw.hostDevRoot(), LocalDevRoot: hw.localDevRoot(),
		Edits: cdi.NewDriverEdits(hw, hw.roots, hook),
	})
	if err != nil {
		return nil, err
	}
	options := claim.Options{
		DriverName: o.driverName,
		PoolName:   o.nodeName,
		BootID:     boot,
		LockFile:   a.home.LockFile(),
		Records:    a.home.Claims,
		Inventory:  a.inventory,
		Occupancy:  occupancy(hw, client),
		// Device plugins give GPUs away without a word to this agent.
		BeforePrepare: a.inventory.RefreshExternal,
		CDI:           specs,
		MonitorNodes:  hw.machine.MonitorNodes,
		Partitioning: &claim.Partitioning{
			MIG: hw, CapabilityNodes: hw.machine.CapabilityNodes, Modes: a.home.MIGModes, Static: o.mig.Static,
		},
		ContextMemory: uint64(o.sharing.contextMemory.Value()),
		Shares:        o.sharing.shares(),
		TimeSlicing:   hw.timeSlices,
		Intervals:     a.home.TimeSlices,
		Attributes:    sources.Attributes,
		Observer:      a.metrics,
	}
	if o.sharing.supervisor != "" {
		if a.supervisor, err = mpsclient.New(o.sharing.supervisor); err != nil {
			return nil, fmt.Errorf("--mps-supervisor: %w", err)
		}
		options.MPS = a.supervisor
	}
	if a.claims, err = claim.New(options); err != nil {
		return nil, err
	}
	a.holders = inventory.NewHolders(a.held, a.claims.SwitchedModes)
	a.controller = controller.New(controller.Options{Sources: sources, Holders: a.holders, Clock: clock.RealClock{}})
	return a, nil
}

// run starts the parts in the order in which they need each other, and stops
// them in reverse. Claims of an earlier process are recovered before the kubelet
// can ask for new ones, unless that takes long.
func (a *agent) run(parent context.Context) error {
	var parts sync.WaitGroup
	idle := true
	defer func() { a.leave(context.WithoutCancel(parent), idle) }()
	defer a.close()
	defer parts.Wait()
	ctx, fatal := context.WithCancelCause(parent)
	defer fatal(nil)
	if a.ending != nil {
		context.AfterFunc(ctx, a.ending)
	}

	if a.cdiHook != "" {
		warnOfHook(ctx, a.cdiHook)
	}
	if a.httpListen != "" {
		wait, err := serveHTTP(ctx, a.httpListen, a.handler(), fatal)
		if err != nil {
			return err
		}
		parts.Go(wait)
	}
	parts.Go(func() { _ = a.inventory.Run(ctx, a.holders) })
	parts.Go(func() { cluster.WatchNode(a.client, a.nodeName)(ctx, a.setNode) })

	recovered := make(chan struct{})
	parts.Go(func() { defer close(recovered); a.recover(ctx) })
	select {
	case <-recovered:
	case <-time.After(recoverPatience):
		klog.FromContext(ctx).Info("Serving before every claim is recovered", "after", recoverPatience)
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		if err := a.serve(ctx, fatal); err != nil {
			return err
		}
		parts.Go(func() { _ = a.controller.Run(ctx, a.plugin.Publish) })
		<-ctx.Done()
		klog.FromContext(ctx).Info("Stopping", "why", context.Cause(ctx))
		idle = a.plugin.Stop()
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// close ends the connections to the supervisor, whose daemons run on, and to the
// kubelet.
func (a *agent) close() {
	// Nothing is under way on them.
	if a.supervisor != nil {
		_ = a.supervisor.Close()
	}
	if a.plugins != nil {
		_ = a.plugins.Close()
	}
}

// removeLeftovers is for who is the only agent of the node.
func removeLeftovers(ctx context.Context, o *options) {
	if err := plugin.RemoveLeftovers(ctx, o.driverName, o.driverDir(), o.kubeletRegistryDir, o.cdiDir); err != nil {
		klog.FromContext(ctx).Error(err, "Could not remove what agents that were killed have left; the next agent tries again")
	}
}

// leave gives up the home, at the very end: nothing of this agent writes there
// any more, unless a call hangs.
func (a *agent) leave(ctx context.Context, idle bool) {
	err := a.home.Leave(func() (bool, error) {
		held, err := a.claims.Held(ctx)
		if !idle || len(held) > 0 || err != nil {
			return true, err
		}
		return false, plugin.RemoveMetadata(a.driverName, a.driverDir(), a.cdiDir)
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not tidy up; an agent that starts and ends here tries again")
	}
}

// recover brings what an earlier process left to rest. Claims that this does
// not succeed for keep their devices, and the others must not wait for them.
func (a *agent) recover(ctx context.Context) {
	logger := klog.FromContext(ctx)
	limited, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	report, err := a.claims.Recover(limited)
	if err != nil {
		logger.Error(err, "Could not recover every claim; will try again", "after", a.reconcileInterval)
	}
	logger.Info("Recovered claims", "verified", len(report.Verified), "undone", len(report.Undone),
		"forgotten", len(report.Forgotten), "quarantined", len(report.Quarantined), "unrecorded", len(report.Unrecorded), "busy", len(report.Busy))
}

func (a *agent) serve(ctx context.Context, fatal func(error)) error {
	p, err := plugin.Start(ctx, plugin.Options{
		DriverName:        a.driverName,
		NodeName:          a.nodeName,
		PodUID:            types.UID(a.podUID),
		DataDir:           a.driverDir(),
		RegistryDir:       a.kubeletRegistryDir,
		CDIDir:            a.cdiDir,
		Client:            a.client,
		Claims:            claims{a.claims, a.controller, a.inventory},
		Devices:           health{a.controller},
		Metrics:           a.metrics,
		Clock:             clock.RealClock{},
		ReconcileInterval: a.reconcileInterval,
		PublishError:      a.features.HandleError,
		Fatal:             fatal,
	})
	if err != nil {
		return err
	}
	a.plugin = p
	close(a.served)
	return nil
}

// setNode passes what the API server says about the node to the parts that need it.
func (a *agent) setNode(node cluster.Node, err error) {
	if err == nil {
		a.inventory.SetDevicePlugin(node.DevicePlugin)
		a.inventory.SetRepaired(node.Annotations[v1alpha1.AnnotationRepaired])
	}
	a.offer.SetNode(node, err)
}
