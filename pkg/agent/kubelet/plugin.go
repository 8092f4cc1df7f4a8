// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Options of a [Plugin]. All fields are required unless their comment says otherwise.
type Options struct {
	place.Place
	// NodeName is the name of the node, and of its pool.
	NodeName string
	Client   kubernetes.Interface
	Claims   Claims
	Ledger   Ledger
	Foreign  Foreign
	Hardware Hardware
	Accounts Accounts
	Devices  Devices
	// Observer records events, and Tasks the tasks of the reconciliation. A task that takes
	// longer than [StuckAfter] hangs.
	Observer Observer
	Tasks    Tasks
	Clock    clock.WithTicker
	// Conflicts returns the conflicts of a device that a prepared claim holds; may be nil.
	Conflicts func(ctx context.Context, device kind.Name) []Conflict
	// Daemons lists the MPS daemons that programs have lost or wait for; nil without a supervisor.
	Daemons func(ctx context.Context) ([]MPSDaemon, error)
	// Cause returns the health of a GPU for events to its users; nil creates no events. Reports
	// stores the records of these events.
	Cause   CauseFunc
	Reports Records
	// Faults finds the faults of programs for events on the pods that they end; nil creates none.
	Faults Faults
	// ReconcileInterval is the time between two comparisons with the claims in the
	// API. The first comparison is within the first interval, at a time that depends
	// on the node's name.
	ReconcileInterval time.Duration
	// PublishError receives the errors of writing ResourceSlices.
	PublishError func(ctx context.Context, err error, msg string)
	// Fatal is called with an error after which the process must end.
	Fatal func(error)
}

// Plugin serves the kubelet. It implements [kubeletplugin.DRAPlugin].
type Plugin struct {
	Options

	status       *statusWriter
	registration *registration
	events       events
	// reads limits the rate at which reconciliation reads claims from the API. rounds
	// counts the rounds in which a claim was unneeded. Only the reconciliation uses
	// them.
	reads  flowcontrol.RateLimiter
	rounds rounds
	// repairs has an item if a repair was requested.
	repairs chan struct{}
	// checks has the callers of [Plugin.CheckForeign]. compared is when the claims were last
	// compared with the API.
	checks   chan chan struct{}
	compared time.Time
	sockets  place.Sockets
	// foreignDevices is the number of devices of another driver in the node's slices. Only the
	// reconciliation uses it.
	foreignDevices int
	// refused has the claims whose files could not be restored in the last repair. Only the
	// reconciliation uses it.
	refused map[types.UID]bool
	// disturbed are the daemons of the last comparison. Only the reconciliation uses them.
	disturbed []MPSDaemon
	shares    shares
	// published is set once the node's slices exist.
	published bool

	helper *kubeletplugin.Helper
	// calls is held for reading by every call of the kubelet. Stop holds it for
	// writing, so that no call runs after it.
	calls  sync.RWMutex
	ended  bool
	cancel context.CancelFunc
	owned  sync.WaitGroup
}

// Start serves the kubelet over the plugin's sockets. It also starts the reconciliation, the
// status writer and the events about health. [Plugin.Stop] stops all of them.
func Start(ctx context.Context, o Options) (*Plugin, error) {
	p := &Plugin{
		Options: o, events: newEvents(o), registration: newRegistration(), status: newStatusWriter(o.Client.ResourceV1(), o.DriverName, o.Observer),
		reads:   flowcontrol.NewTokenBucketRateLimiter(readsPerSecond, readsAtOnce),
		repairs: make(chan struct{}, 1), checks: make(chan chan struct{}), sockets: o.Sockets(),
	}
	if err := os.MkdirAll(o.DataDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the plugin's directory: %w", err)
	}
	// ctx ends with the process. Current calls and queued writes must continue until
	// Stop.
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(o.DriverName),
		kubeletplugin.NodeName(o.NodeName),
		kubeletplugin.KubeClient(o.Client),
		kubeletplugin.PluginDataDirectoryPath(o.DataDir),
		kubeletplugin.RegistrarDirectoryPath(o.RegistryDir),
		kubeletplugin.RollingUpdate(place.Instance(o.PodUID)),
		// Package claim does the locking, per GPU.
		kubeletplugin.Serialize(false),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{WriteFile: place.WriteMetadata}),
		kubeletplugin.CDIDirectory(o.CDIDir),
		kubeletplugin.HealthService(true),
		kubeletplugin.GRPCVerbosity(grpcVerbosity),
		kubeletplugin.GRPCInterceptor(p.registration.intercept),
		kubeletplugin.GRPCInterceptor(p.guard),
	}
	if o.Network != nil {
		options = append(options, kubeletplugin.RegistrarListener(o.Network.Listen), kubeletplugin.PluginListener(o.Network.Listen))
	}
	var err error
	p.helper, err = kubeletplugin.Start(ctx, p, options...)
	if err != nil {
		p.cancel()
		return nil, fmt.Errorf("serve the kubelet in %s (sockets also in %s): %w", filepath.Clean(o.DataDir), o.RegistryDir, err)
	}
	p.owned.Go(func() { p.status.Run(ctx) })
	p.owned.Go(func() { p.reconcileLoop(ctx) })
	if o.Cause != nil {
		p.owned.Go(func() {
			p.serveAccessory(ctx, "events", func(ctx context.Context) { newHealthEvents(o).run(ctx, o.Devices) })
		})
	}
	if o.Faults != nil {
		faults := newFaultEvents(o)
		p.owned.Go(func() { p.serveAccessory(ctx, "faults", faults.follow) })
		p.owned.Go(func() { p.serveAccessory(ctx, "events about faults", faults.send) })
	}
	return p, nil
}

// serveAccessory runs a part until ctx ends. After a panic it logs the cause and runs the part
// again: the agent prepares claims without it.
func (p *Plugin) serveAccessory(ctx context.Context, part string, run func(context.Context)) {
	pause := eventsBackoff()
	for panics(ctx, part, run) {
		select {
		case <-p.Clock.After(pause.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// panics runs a part and reports whether it has panicked.
func panics(ctx context.Context, part string, run func(context.Context)) (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = true
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", cause), "A part has failed, starting it again", "part", part, "stack", string(debug.Stack()))
		}
	}()
	run(ctx)
	return false
}

const (
	// grpcVerbosity is the log level of every gRPC request and response.
	grpcVerbosity = 6
	// callsDrain plus stopDrain, which includes statusDrain, must be well below a
	// pod's grace period of 30 s.
	callsDrain, stopDrain = 10 * time.Second, 8 * time.Second
)

// CheckRegistered returns nil while the plugin is registered with the kubelet, or else the
// reason.
func (p *Plugin) CheckRegistered() error { return p.registration.err() }

// CheckSockets returns an error unless the plugin answers the kubelet's calls.
func (p *Plugin) CheckSockets() error { return p.sockets.Check() }

// guard lets Stop wait for current calls, and refuses calls after Stop.
func (p *Plugin) guard(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	p.calls.RLock()
	defer p.calls.RUnlock()
	if p.ended {
		return nil, status.Error(codes.Unavailable, "this agent ends; another one takes over")
	}
	return handler(ctx, req)
}

// Stop waits for current calls, stops serving and writes the queued status, each for a
// limited time. It reports whether everything has ended. If not, a call or a repair
// that hangs in the GPU driver may still act.
func (p *Plugin) Stop() (ended bool) {
	idle, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		p.calls.Lock() // new calls block here until their connection is closed
		defer p.calls.Unlock()
		p.ended = true
		close(idle)
		<-stopped
	}()
	callsEnded := p.endsWithin(idle, callsDrain)
	go func() {
		defer close(stopped)
		p.helper.Stop()
		p.cancel()
		p.owned.Wait()
	}()
	return p.endsWithin(stopped, stopDrain) && callsEnded
}

func (p *Plugin) endsWithin(end <-chan struct{}, limit time.Duration) bool {
	select {
	case <-end:
		return true
	case <-p.Clock.After(limit):
		return false
	}
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)
