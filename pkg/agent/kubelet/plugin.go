// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
)

// Options of a [Plugin]. All fields are required unless their comment says otherwise.
type Options struct {
	place.Place
	// NodeName is the name of the node, and of its pool.
	NodeName string
	Client   kubernetes.Interface
	Claims   Claims
	Ledger   Ledger
	Hardware Hardware
	Accounts Accounts
	Devices  Devices
	Reporter *report.Reporter
	Observer Observer
	Clock    clock.WithTicker
	// Calls has every call of the kubelet. Stop excludes them, so that no call runs after it.
	Calls place.Calls
	// Background runs while the plugin serves, and until its last call has ended.
	Background []func(context.Context)
	// PublishError receives the errors of writing ResourceSlices.
	PublishError func(ctx context.Context, err error, msg string)
	// Fatal is called with an error after which the process must end.
	Fatal func(error)
}

// Plugin serves the kubelet. It implements [kubeletplugin.DRAPlugin].
type Plugin struct {
	Options

	registration *registration
	sockets      place.Sockets
	// published is set once the node's slices exist.
	published bool

	helper *kubeletplugin.Helper
	// ended is set by Stop, which excludes calls.
	ended  bool
	cancel context.CancelFunc
	owned  sync.WaitGroup
}

// Start serves the kubelet over the plugin's sockets, and starts the background. [Plugin.Stop]
// stops both.
func Start(ctx context.Context, o Options) (*Plugin, error) {
	p := &Plugin{Options: o, registration: newRegistration(), sockets: o.Sockets()}
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
	for _, run := range o.Background {
		p.owned.Go(func() { run(ctx) })
	}
	return p, nil
}

const (
	// grpcVerbosity is the log level of every gRPC request and response.
	grpcVerbosity = 6
	// callsDrain plus stopDrain, which includes the drain of the queued status, must be well below a
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
	if err := p.Calls.Begin(ctx); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer p.Calls.End()
	if p.ended {
		return nil, status.Error(codes.Unavailable, "this agent ends; another one takes over")
	}
	return handler(ctx, req)
}

// Stop waits for current calls, stops serving and the background, each for a
// limited time. It reports whether everything has ended. If not, a call or a repair
// that hangs in the GPU driver may still act.
func (p *Plugin) Stop() (ended bool) {
	idle, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		p.Calls.Exclude() // new calls wait until their connection is closed
		defer p.Calls.Admit()
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
