// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/ledger"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/reconcile"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// host has the folder, the hardware and the clients of an agent.
type host struct {
	connections
	hardware *hardware
	// home is the agent's folder. The agent holds it until it has run.
	home *home.Home
	// bootID identifies the boot of the machine.
	bootID string
	specs  *cdi.Writer
	limits memoryLimits
}

// openNode checks the configuration, enters the agent's folder, and installs the hooks there.
// Calls of the GPUs come later.
func openNode(ctx context.Context, c *Config, hw *hardware, client kubernetes.Interface) (_ host, err error) {
	h := host{hardware: hw}
	if h.connections, err = c.connect(client); err != nil {
		return host{}, err
	}
	if err := c.checkDaemonSet(); err != nil {
		return host{}, err
	}
	if h.bootID, err = hw.machine.BootID(); err != nil {
		return host{}, err
	}
	program, err := c.hookToInstall()
	if err != nil {
		return host{}, err
	}
	if h.home, err = home.Enter(ctx, c.driverDir(), func() { removeLeftovers(context.WithoutCancel(ctx), c) }, c.disks...); err != nil {
		return host{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.home.Close())
		}
	}()
	hook := c.CDIHook
	if program != "" {
		if hook, err = h.home.InstallHook(program); err != nil {
			return host{}, err
		}
	}
	h.specs, err = cdi.NewWriter(cdi.Options{
		Dir: c.CDIDir, DriverName: c.DriverName, DevRoot: hw.hostDevRoot(), LocalDevRoot: hw.localDevRoot(),
		Edits: cdi.NewDriverEdits(hw, hw.roots, hook, c.Directs...),
	})
	if err != nil {
		return host{}, err
	}
	h.limits = c.memoryLimits(ctx, h.home, hw)
	return h, nil
}

// knowledge is the state of the node, and the writers of its tables. The writer of the table
// of claims is the ledger.
type knowledge struct {
	state      *state.State
	inventory  *inventory.Inventory
	nodeConfig *cluster.NodeConfig
	features   *cluster.Features
	// consumers finds the pods that use devices.
	consumers attribution.Consumers
	// scans are the scans of the hardware.
	scans *telemetry.Activity
}

// newKnowledge returns the state of the node before its writers run.
func newKnowledge(c *Config, h host) knowledge {
	known := state.New(state.Fixed{NoMemoryLimits: h.limits.err, Node: c.NodeName})
	k := knowledge{
		state:      known,
		nodeConfig: c.newNodeConfig(h.home.NodeConfig, &known.Configuration),
		features:   cluster.NewFeatures(cluster.ServerVersion(h.client), &known.Features),
		consumers:  attribution.NewConsumers(cmp.Or(c.kernel, "/"), filepath.Dir(c.KubeletPluginsDir), c.driverDir(), place.MetadataFolder),
		scans:      telemetry.NewActivity(c.clock(), scanStuckAfter),
	}
	machine := h.hardware.machine
	options := inventory.Options{
		State: known, Hardware: timedHardware{h.hardware.Library, k.scans}, Bus: machine, DriverLoad: machine.DriverLoad, StaticMIG: c.MIG.Static,
		Faults: h.home.Faults, BootID: h.bootID, Clock: c.clock(), DeviceNodes: h.hardware.ensureDeviceNodes,
	}
	if h.podResources != nil {
		options.External = c.externalSource(h.podResources, k.consumers)
	}
	if h.supervisor != nil {
		options.Namespaces = h.supervisor
	}
	k.inventory = inventory.New(options)
	return k
}

// claims prepares claims, and writes their devices to the state.
type claims struct {
	*claim.Manager
	ledger  *ledger.Ledger
	metrics *telemetry.Metrics
	// attributes are those of the devices, for claims and for users.
	attributes *state.Attributes
}

// newClaims returns the claims of the node before those of an earlier process are recovered.
func newClaims(ctx context.Context, c *Config, h host, k knowledge) (claims, error) {
	metrics, attributes := telemetry.NewMetrics(report.Reasons()), k.state.Attributes(c.settings())
	options := claim.Options{
		DriverName: c.DriverName,
		PoolName:   c.NodeName,
		LockFile:   h.home.LockFile(),
		Records:    h.home.Claims,
		Node:       c.ports(h, k),
		Occupancy:  attribution.Occupancy(ctx, h.hardware, h.client, k.consumers, containerlimits.Folder(h.home.Limits())),
		// Device plugins allocate GPUs without a message to this agent.
		BeforePrepare: func(ctx context.Context) {
			k.inventory.RefreshExternal(ctx)
			k.inventory.RefreshNamespaces(ctx)
		},
		Shares:     func() catalog.ShareOffer { return k.state.Configuration.Get().Followed.Config.Shares },
		Attributes: attributes.Of,
		Observer:   metrics,
	}
	if h.supervisor != nil {
		options.MPS = h.supervisor
	}
	manager, err := claim.New(options)
	if err != nil {
		return claims{}, err
	}
	return claims{manager, ledger.New(manager, &k.state.Claimed, c.clock()), metrics, attributes}, nil
}

// ports returns the parts of the node with which claims are prepared, without MPS.
func (c *Config) ports(h host, k knowledge) ports.Node {
	hw := h.hardware
	node := ports.Node{
		BootID: h.bootID, Inventory: k.state, CDI: h.specs, MonitorNodes: hw.machine.MonitorNodes,
		Partitioning: &ports.Partitioning{
			MIG: hw, CapabilityNodes: hw.machine.CapabilityNodes, Openers: k.consumers.Proc.Openers, Modes: h.home.MIGModes, Static: c.MIG.Static,
			Kept: h.home.MIGDevices, Keep: func(name kind.Name) bool { return k.state.Configuration.Get().Followed.Keeps(name) },
		},
		Limits:           h.limits.ports,
		ExclusiveCompute: &ports.ExclusiveCompute{Modes: hw, Changed: h.home.ComputeModes, Off: !c.ExclusiveCompute},
	}
	if hw.timeSlices != nil {
		node.TimeSlicing = &ports.TimeSlicing{Slices: hw.timeSlices, Intervals: h.home.TimeSlices}
	}
	return node
}

// observers read the state and the node, and change neither.
type observers struct {
	controller *controller.Controller
	accounts   attribution.Accounts
	usage      *attribution.Reader
	foreign    *usage.Foreign
	faults     faults
}

// newObservers returns the observers of a node.
func newObservers(ctx context.Context, c *Config, h host, k knowledge, held claims) observers {
	o := observers{
		controller: controller.New(controller.Options{State: k.state, Settings: c.settings(), Clock: c.clock()}),
		foreign:    usage.NewForeign(c.clock()),
		faults:     newFaults(c.MachineRoot, k.consumers.Tasks),
	}
	charged := func() usage.Node { return chargedNode(k.state.Snapshot(), o.controller) }
	o.accounts = attribution.Accounts{
		Pods: attribution.NewPods(c.clock(), attribution.GetClaim(h.client), k.consumers.Of), Meter: usage.NewMeter(c.clock()),
		Claims: held.Held, Node: charged,
	}
	o.usage = attribution.New(c.usageOptions(ctx, h, held, o.accounts))
	if o.faults.noPIDs != nil {
		klog.FromContext(ctx).Info("Cannot find the programs of faults on GPUs", "err", o.faults.noPIDs)
	}
	return o
}

// serving has the parts that serve the kubelet.
type serving struct {
	plugin *startedPlugin
	rivals *place.Rivals
	// rounds are the rounds of the reconciliation.
	rounds    *telemetry.Activity
	cdiFolder *cdi.Dir
}

// newServing returns the parts that serve the kubelet, before they serve.
func newServing(c *Config, held claims) serving {
	return serving{
		plugin:    newStartedPlugin(),
		rivals:    place.NewRivals(c.place(), held.metrics, c.clock()),
		rounds:    telemetry.NewActivity(c.clock(), reconcile.StuckAfter),
		cdiFolder: cdi.NewDir(c.CDIDir),
	}
}
