// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/ledger"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/plugin"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/viewers"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/livefile"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	mpsclient "github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nodefacts"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
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

// agent is the parts of an agent.
type agent struct {
	*Config
	client kubernetes.Interface
	// supervisor runs MPS daemons; nil if the node has none.
	supervisor *mpsclient.Client
	// podResources reads external allocations; nil if they are not read.
	podResources *podresources.Client
	home         *home.Home
	inventory    *inventory.Inventory
	state        *state.State
	nodeConfig   *cluster.NodeConfig
	features     *cluster.Features
	claims       *claim.Manager
	ledger       *ledger.Ledger
	controller   *controller.Controller
	metrics      *telemetry.Metrics
	// scans and rounds are the scans of the hardware and the rounds of the reconciliation.
	scans, rounds *telemetry.Activity
	cdiFolder     *cdi.Dir
	kubelet       *served
	rivals        *plugin.Rivals
	accounts      attribution.Accounts
	usage         *attribution.Reader
	// readGauges reads the use, the temperature and the power of a GPU.
	readGauges func(ctx context.Context, address gpu.PCIAddress) (gpu.Gauges, error)
	// readPower reads the energy and the clocks of a GPU.
	readPower func(ctx context.Context, address gpu.PCIAddress) (gpu.Power, error)
	foreign   *usage.Foreign
	faults    faults
	facts     *nodefacts.Reader
	// driver sets memory limits for hooks.
	driver memoryhook.Driver
	// viewers may read the facts; nil if no user may.
	viewers *viewers.Viewers
}

// newAgent puts an agent together. The agent holds its home from then on, until it
// has run.
func newAgent(ctx context.Context, c *Config, hw *hardware, client kubernetes.Interface) (_ *agent, err error) {
	podResources, err := c.openPodResources()
	if err != nil {
		return nil, err
	}
	supervisor, err := c.openSupervisor()
	if err != nil {
		return nil, err
	}
	users, err := c.newViewers(client)
	if err != nil {
		return nil, err
	}
	if err := c.checkDaemonSet(); err != nil {
		return nil, err
	}
	boot, err := hw.machine.BootID()
	if err != nil {
		return nil, err
	}
	program, err := c.hookToInstall()
	if err != nil {
		return nil, err
	}
	folder, err := home.Enter(ctx, c.driverDir(), func() { removeLeftovers(context.WithoutCancel(ctx), c) })
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, folder.Close())
		}
	}()
	hook := c.CDIHook
	if program != "" {
		if hook, err = folder.InstallHook(program); err != nil {
			return nil, err
		}
	}
	specs, err := cdi.NewWriter(cdi.Options{
		Dir: c.CDIDir, DriverName: c.DriverName, DevRoot: hw.hostDevRoot(), LocalDevRoot: hw.localDevRoot(),
		Edits: cdi.NewDriverEdits(hw, hw.roots, hook, c.Directs...),
	})
	if err != nil {
		return nil, err
	}

	memory, noLimits := c.memoryLimits(ctx, folder, hw)
	noLimits = cmp.Or(c.checkMemoryLimits(hw), noLimits)
	scans := telemetry.NewActivity(clock.RealClock{}, scanStuckAfter)
	known := state.New(state.Features{NoMemoryLimits: noLimits, Node: c.NodeName})
	gpus := inventory.Options{
		State: known, Hardware: timedHardware{hw.Library, scans}, Bus: hw.machine, DriverLoad: hw.machine.DriverLoad, StaticMIG: c.MIG.Static,
		Faults: folder.Faults, BootID: boot, Clock: clock.RealClock{}, DeviceNodes: hw.ensureDeviceNodes,
	}
	consumers := attribution.NewConsumers(filepath.Dir(c.KubeletPluginsDir), c.driverDir(), plugin.MetadataFolder)
	if podResources != nil {
		gpus.External = c.externalSource(podResources, consumers)
	}
	if supervisor != nil {
		gpus.Namespaces = supervisor
	}
	gpuInventory := inventory.New(gpus)
	metrics := telemetry.NewMetrics(plugin.Reasons())
	options := claim.Options{
		DriverName: c.DriverName,
		PoolName:   c.NodeName,
		LockFile:   folder.LockFile(),
		Records:    folder.Claims,
		Node: c.parts(boot, folder, hw, known, specs, memory, func(name kind.Name) bool {
			return known.Configuration.Get().Followed.Keeps(name)
		}),
		Occupancy: attribution.Occupancy(ctx, hw, client, consumers, containerlimits.Folder(folder.Limits())),
		// Device plugins allocate GPUs without a message to this agent.
		BeforePrepare: func(ctx context.Context) {
			gpuInventory.RefreshExternal(ctx)
			gpuInventory.RefreshNamespaces(ctx)
		},
		Shares:     func() catalog.ShareOffer { return known.Configuration.Get().Followed.Config.Shares },
		Attributes: known.Attributes(c.settings()).Of,
		Observer:   metrics,
	}
	if supervisor != nil {
		options.MPS = supervisor
	}
	claims, err := claim.New(options)
	if err != nil {
		return nil, err
	}
	book, config, features := ledger.New(claims, &known.Claimed), c.newNodeConfig(folder.NodeConfig, &known.Configuration), cluster.NewFeatures(cluster.ServerVersion(client), &known.Features)
	a := &agent{
		Config: c, client: client, supervisor: supervisor, podResources: podResources, home: folder,
		state: known, inventory: gpuInventory, nodeConfig: config, features: features, claims: claims, ledger: book,
		controller: controller.New(controller.Options{State: known, Claims: book, NodeConfig: config, Features: features, Settings: c.settings(), Clock: clock.RealClock{}}),
		metrics:    metrics, scans: scans, rounds: telemetry.NewActivity(clock.RealClock{}, plugin.StuckAfter), cdiFolder: cdi.NewDir(c.CDIDir), kubelet: newServed(),
	}
	a.accounts = attribution.Accounts{
		Pods: attribution.NewPods(clock.RealClock{}, attribution.GetClaim(client), consumers.Of), Meter: usage.NewMeter(clock.RealClock{}),
		Claims: claims.Held, Node: a.chargedNode,
	}
	a.readGauges = hw.Gauges
	a.usage, a.foreign = attribution.New(a.usageOptions(ctx, hw)), usage.NewForeign(clock.RealClock{})
	a.faults = newFaults(c.MachineRoot, consumers.Tasks)
	if a.faults.noPIDs != nil {
		klog.FromContext(ctx).Info("Cannot find the programs of faults on GPUs", "err", a.faults.noPIDs)
	}
	a.rivals = plugin.NewRivals(a.pluginOptions())
	a.readPower, a.driver = hw.Power, hw
	a.facts, a.viewers = &nodefacts.Reader{Roots: c.factRoots(hw), LastScan: a.lastScan, Clocks: hw.Clocks, ConfigProblem: a.configProblem, KernelLog: a.faults.Check}, users
	return a, nil
}

// parts returns the parts of the node with which claims are prepared, without MPS.
func (c *Config) parts(boot string, folder *home.Home, hw *hardware, known *state.State, specs *cdi.Writer, memory *ports.MemoryLimits, keep func(kind.Name) bool) ports.Node {
	parts := ports.Node{
		BootID: boot, Inventory: known, CDI: specs, MonitorNodes: hw.machine.MonitorNodes,
		Partitioning: &ports.Partitioning{
			MIG: hw, CapabilityNodes: hw.machine.CapabilityNodes, Openers: procfs.Root("/").Openers, Modes: folder.MIGModes, Static: c.MIG.Static,
			Kept: folder.MIGDevices, Keep: keep,
		},
		Limits:           memory,
		ExclusiveCompute: &ports.ExclusiveCompute{Modes: hw, Changed: folder.ComputeModes, Off: !c.ExclusiveCompute},
	}
	if hw.timeSlices != nil {
		parts.TimeSlicing = &ports.TimeSlicing{Slices: hw.timeSlices, Intervals: folder.TimeSlices}
	}
	return parts
}

// run starts the parts in the order in which they need each other, and stops
// them in reverse. Claims of an earlier process are recovered before the kubelet
// can send new ones, unless that takes long.
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
			return fmt.Errorf("%s=%s: %w", a.Names.HTTPListen, a.HTTPListen, err)
		}
		parts.Go(wait)
	}
	parts.Go(func() { a.inventory.Run(ctx, a.ledger) })
	parts.Go(func() { a.serveMemoryHooks(ctx) })
	parts.Go(func() { a.restoreHooks(ctx) })
	parts.Go(func() { cluster.WatchNode(a.client, a.NodeName)(ctx, a.setNode) })

	if a.NodeConfigs != "" {
		parts.Go(func() {
			livefile.Follow(ctx, a.NodeConfigs, func(content []byte, err error) { a.nodeConfig.SetNamed(a.parseNodeConfigs(content, err)) })
		})
	}
	if a.MIGLayouts != "" {
		parts.Go(func() {
			livefile.Follow(ctx, a.MIGLayouts, func(content []byte, err error) { a.nodeConfig.SetLayouts(a.parseLayouts(content, err)) })
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
		a.rivals.Wait(ctx)
	}
	parts.Go(func() { a.rivals.Run(ctx) })
	if ctx.Err() == nil {
		kubelet, err := a.serve(ctx, fatal)
		if err != nil {
			return err
		}
		parts.Go(func() { a.controller.Run(ctx, kubelet.Publish) })
		<-ctx.Done()
		klog.FromContext(ctx).Info("Stopping", "why", context.Cause(ctx))
		idle = kubelet.Stop()
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// removeLeftovers removes the files of agents that were killed. No other agent runs
// on the node.
func removeLeftovers(ctx context.Context, c *Config) {
	if err := plugin.RemoveLeftovers(ctx, c.DriverName, c.driverDir(), c.KubeletRegistryDir, c.CDIDir); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove files of killed agents, will retry")
	}
}

// leave gives up the home, at the very end: this agent writes nothing there any
// more, unless a call hangs.
func (a *agent) leave(ctx context.Context, idle bool) {
	idle = idle && !isInstalled(ctx, a.client, a.DaemonSet)
	err := a.home.Leave(func() (bool, error) {
		held, err := a.claims.Held(ctx)
		if !idle || len(held) > 0 || err != nil {
			return true, err
		}
		return false, plugin.RemoveMetadata(a.DriverName, a.driverDir(), a.CDIDir)
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
	report, err := a.claims.Recover(limited)
	if err != nil {
		logger.Error(err, "Cannot recover every claim, will retry", "after", a.ReconcileInterval)
	}
	logger.Info("Recovered claims", "verified", len(report.Verified), "undone", len(report.Undone),
		"forgotten", len(report.Forgotten), "quarantined", len(report.Quarantined), "unrecorded", len(report.Unrecorded), "busy", len(report.Busy))
}

// serve starts to serve the kubelet.
func (a *agent) serve(ctx context.Context, fatal func(error)) (*plugin.Plugin, error) {
	options := a.pluginOptions()
	options.Fatal = fatal
	p, err := plugin.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	a.kubelet.begin(p)
	return p, nil
}

// pluginOptions returns the options of the plugin, without Fatal.
func (a *agent) pluginOptions() plugin.Options {
	o := plugin.Options{
		DriverName:        a.DriverName,
		NodeName:          a.NodeName,
		PodUID:            types.UID(a.PodUID),
		DataDir:           a.driverDir(),
		RegistryDir:       a.KubeletRegistryDir,
		CDIDir:            a.CDIDir,
		Client:            a.client,
		Claims:            a.claims,
		Ledger:            a.ledger,
		Foreign:           a.foreign,
		Hardware:          a.inventory,
		Accounts:          a.accounts,
		Devices:           health{a.controller},
		Observer:          a.metrics,
		Tasks:             a.rounds,
		Clock:             clock.RealClock{},
		Conflicts:         a.conflicts,
		Cause:             a.causeAt,
		Reports:           a.home.Events,
		Faults:            a.faults,
		ReconcileInterval: a.ReconcileInterval,
		PublishError:      a.features.HandleError,
	}
	if a.supervisor != nil {
		o.Daemons = a.daemons
	}
	return o
}

// setNode passes what the API server says about the node to the parts that need it.
func (a *agent) setNode(node cluster.Node, err error) {
	if err == nil {
		a.inventory.SetDevicePlugin(node.DevicePlugin)
		a.inventory.SetRepaired(node.Annotations[v1alpha1.AnnotationRepaired])
		a.inventory.SetCordoned(node.Annotations[v1alpha1.AnnotationCordoned])
	}
	a.nodeConfig.SetNode(node, err)
}
