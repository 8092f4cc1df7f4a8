// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/reconcile"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/viewers"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nodefacts"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
)

// scanStuckAfter is the time after which a scan of the GPUs counts as hanging: each
// call of a scan has its own, shorter deadline.
const scanStuckAfter = 5 * time.Minute

// handler returns the handler of metrics, probes and the attributes of the devices. If
// users have an account for it, it also serves the facts about the node and the use by
// its claims.
func (a *agent) handler() http.Handler {
	state := telemetry.State{
		ClaimsHeld: a.claimsHeld, SeesPods: a.claims.SeesPods, Devices: a.devicesByState, Phases: a.phases, ConfigProblem: func() bool { return a.configProblem() != nil },
		Usage: a.claimUsage, ShareSeconds: a.observers.accounts.Accrue, GPUs: a.gpuHealth, Power: a.gpuPower,
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+agentv1.PathDevices, telemetry.Page(a.devices))
	if a.node.viewers != nil {
		mux.Handle("GET "+agentv1.PathNode, a.node.viewers.Only(telemetry.Page(a.facts().Read)))
		mux.Handle("GET "+agentv1.PathClaims, a.node.viewers.Only(telemetry.Page(a.viewedUsage)))
	}
	mux.Handle("/", telemetry.Handler(a.claims.metrics, state, []telemetry.Check{
		{Name: "serving", Err: a.checkServingOrWaiting},
		{Name: "folders", Err: a.restoreFolders},
		{Name: "sockets", Err: a.checkSockets},
		{Name: "reconciliation", Err: a.serving.rounds.Err},
		{Name: "scan", Err: a.known.scans.Err},
	}, []telemetry.Check{
		{Name: "serving", Err: a.checkServing},
		{Name: "gpus", Err: a.checkScanned},
		{Name: "registered", Err: a.checkRegistered},
	}))
	return mux
}

// newViewers returns the users who may read the facts; nil if none may.
func (c *Config) newViewers(client kubernetes.Interface) (*viewers.Viewers, error) {
	if c.ViewerAccount == "" {
		return nil, nil
	}
	v, err := viewers.New(c.ViewerAccount, c.DriverName, c.PodUID, client.AuthenticationV1().TokenReviews())
	if err != nil {
		return nil, fmt.Errorf("--viewer-account: %w", err)
	}
	return v, nil
}

// devices returns the attributes of the published devices.
func (a *agent) devices(context.Context) agentv1.Devices {
	devices := agentv1.Devices{}
	for _, d := range a.observers.controller.Devices() {
		devices[d.Name.String()] = a.claims.attributes.Of(d.Name)
	}
	return devices
}

// facts returns the reader of the facts about the node. The agent needs no mount of the
// host's root: as a privileged process in the host's PID namespace it sees that of the host's
// first process.
func (a *agent) facts() *nodefacts.Reader {
	return &nodefacts.Reader{
		Roots: nodefacts.Roots{
			Kernel: "/", GPUs: nodefacts.Root(a.node.hardware.machine), Host: hostRoot,
			Kubelet: filepath.Dir(a.KubeletPluginsDir),
		},
		LastScan: a.lastScan, Clocks: a.node.hardware.Clocks, ConfigProblem: a.configProblem, KernelLog: a.observers.faults.Check,
	}
}

// lastScan returns the GPUs of the last scan.
func (a *agent) lastScan() (gpu.Node, error) {
	now := a.known.state.Snapshot()
	if !now.Hardware.Scanned {
		return now.Node(), fmt.Errorf("%w: the agent has not scanned the GPUs yet", gpu.ErrNotReady)
	}
	return now.Node(), now.Hardware.Err
}

// plugin serves the kubelet, and reconciles the claims that it has prepared.
type plugin struct {
	*kubelet.Plugin
	*reconcile.Reconciler
}

// startedPlugin is the plugin that serves the kubelet. There is none until claims of an
// earlier process are recovered.
type startedPlugin struct {
	plugin  atomic.Pointer[plugin]
	started chan struct{} // closed once there is a plugin
}

func newStartedPlugin() *startedPlugin { return &startedPlugin{started: make(chan struct{})} }

// set records the plugin. It is called once.
func (s *startedPlugin) set(p *plugin) {
	s.plugin.Store(p)
	close(s.started)
}

// get returns the plugin; nil if the kubelet is not served yet.
func (s *startedPlugin) get() *plugin { return s.plugin.Load() }

// checkServing returns an error until claims of an earlier process are recovered and
// the sockets are open.
func (a *agent) checkServing() error {
	if a.serving.plugin.get() == nil {
		if err := a.serving.rivals.Err(); err != nil {
			return err
		}
		return errors.New("recovering claims of an earlier process")
	}
	return nil
}

// checkServingOrWaiting is checkServing for an agent that need not be restarted: one that
// waits for another driver to end is alive.
func (a *agent) checkServingOrWaiting() error {
	if waits := a.serving.plugin.get() == nil && a.serving.rivals.Err() != nil; waits {
		return nil
	}
	return a.checkServing()
}

// checkScanned returns an error until the GPUs were scanned and published. It succeeds
// on a node without GPUs or without a driver, whose agent must not stop a rolling
// update. But if claims are prepared on the node, there was a driver: an agent that
// does not find it must not replace the agents of other nodes.
func (a *agent) checkScanned() error {
	s := a.observers.controller.State()
	if s.Phase == controller.Looking || s.Unpublished {
		return fmt.Errorf("%s", s)
	}
	if s.Phase != controller.NoDriver {
		return nil
	}
	held, err := a.claimsHeld()
	if err != nil {
		return fmt.Errorf("%s; and the claims on this node cannot be read: %w", s, err)
	}
	if held > 0 {
		return fmt.Errorf("%s; and %d claims are prepared on this node: is --driver-root the right one?", s, held)
	}
	return nil
}

func (a *agent) checkRegistered() error {
	if err := a.checkServing(); err != nil {
		return err
	}
	return a.serving.plugin.get().CheckRegistered()
}

// restoreFolders makes the CDI directory again if it is gone, and makes the plugin write
// missing and closed specs again. It returns an error if a folder cannot be made again, or if
// the agent's own folder, which holds the records, was replaced.
func (a *agent) restoreFolders() error {
	p := a.serving.plugin.get()
	if p == nil {
		return nil
	}
	changed, err := a.serving.cdiFolder.Check()
	if err = errors.Join(err, a.node.home.Check()); err != nil {
		return err
	}
	lost, err := a.claims.LostSpecs(context.Background())
	if changed || len(lost) > 0 {
		klog.Background().Info("CDI specs of prepared claims are to be written again", "folder", a.CDIDir, "claims", len(lost))
		p.Repair()
	}
	return err
}

// checkSockets returns an error unless the kubelet could reach the agent.
func (a *agent) checkSockets() error {
	p := a.serving.plugin.get()
	if p == nil {
		return nil
	}
	return p.CheckSockets()
}

// timedHardware records how long the scans of the hardware take.
type timedHardware struct {
	*nvml.Library
	scans *telemetry.Activity
}

// Snapshot implements [inventory.Hardware].
func (s timedHardware) Snapshot(ctx context.Context) (gpu.Node, error) {
	defer s.scans.Begin()()
	return s.Library.Snapshot(ctx)
}

func (a *agent) claimsHeld() (int, error) {
	held, err := a.claims.Held(context.Background())
	return len(held), err
}

// devicesByState counts devices for the metrics. A GPU that does not answer is
// unreadable and, if it is published because it once answered, also unhealthy.
func (a *agent) devicesByState() map[string]int {
	states := map[string]int{"healthy": 0, "unhealthy": 0, "unreadable": a.known.state.Hardware.Get().UnreadableCount}
	for _, d := range a.observers.controller.Devices() {
		if d.Healthy {
			states["healthy"]++
		} else {
			states["unhealthy"]++
		}
	}
	return states
}

// configProblem returns why the node's labels or configuration are not followed. It also
// returns which requested attributes do not exist. It returns nil if there is no such
// problem.
func (a *agent) configProblem() error {
	return errors.Join(a.known.state.Configuration.Get().Problem, a.UnknownAttributes)
}

// phases returns 1 for the present phase, and 0 for the others.
func (a *agent) phases() map[string]int {
	now, phases := a.observers.controller.State().Phase, map[string]int{}
	for _, p := range controller.Phases() {
		phases[string(p)] = 0
		if p == now {
			phases[string(p)] = 1
		}
	}
	return phases
}

// health is the health of the devices and of their GPUs.
type health struct {
	*controller.Controller
	state *state.State
}

func (a *agent) health() health { return health{a.observers.controller, a.known.state} }

// Health implements [kubelet.Devices].
func (h health) Health() []kubelet.Health {
	var all []kubelet.Health
	for _, d := range h.Devices() {
		all = append(all, kubelet.Health{Device: d.Name.String(), Healthy: d.Healthy, Message: d.Message})
	}
	return all
}

// CauseAt implements [report.Health].
func (h health) CauseAt(address gpu.PCIAddress) (value string, since time.Time, known bool) {
	return h.state.Snapshot().CauseAt(address)
}
