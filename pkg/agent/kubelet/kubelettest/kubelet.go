// SPDX-License-Identifier: Apache-2.0

// Package kubelettest calls a DRA plugin over its sockets as the kubelet does. It is for
// tests and benchmarks without a kubelet.
//
// It covers registration, prepare, unprepare and the health stream, but no pods.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
)

// Plugin is a registered plugin.
type Plugin struct {
	// Info is the plugin's response to the registration.
	Info *registerapi.PluginInfo
	conn *grpc.ClientConn
}

// Register finds the only plugin with a socket in the registry directory and registers
// it. It then connects to the plugin's service. It waits until ctx ends for the socket
// to appear.
func Register(ctx context.Context, registryDir string) (*Plugin, error) {
	socket, err := waitForSocket(ctx, registryDir)
	if err != nil {
		return nil, err
	}
	return RegisterOver(ctx, nil, socket)
}

// RegisterOver registers the plugin with the registration socket, over a network of sockets.
// A nil network is the machine's.
func RegisterOver(ctx context.Context, network place.Network, socket string) (*Plugin, error) {
	registrar, err := place.Connect(network, socket)
	if err != nil {
		return nil, err
	}
	defer registrar.Close() //nolint:errcheck // the call has ended
	client := registerapi.NewRegistrationClient(registrar)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("ask the plugin at %s who it is: %w", socket, err)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		return nil, fmt.Errorf("tell the plugin at %s that it is registered: %w", socket, err)
	}
	conn, err := place.Connect(network, info.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Plugin{Info: info, conn: conn}, nil
}

// Close closes the connection.
func (p *Plugin) Close() error { return p.conn.Close() }

func waitForSocket(ctx context.Context, dir string) (string, error) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		switch found, err := filepath.Glob(filepath.Join(dir, "*-reg.sock")); {
		case err != nil:
			return "", err
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return "", fmt.Errorf("several plugins in %s: %q", dir, found)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", fmt.Errorf("no plugin has registered in %s: %w", dir, context.Cause(ctx))
		}
	}
}

// Prepare prepares claims in one call and returns the devices or the error of each
// claim, by UID. The returned error is about the call as a whole.
func (p *Plugin) Prepare(ctx context.Context, claims ...*resourceapi.ResourceClaim) (map[string]*draapi.NodePrepareResourceResponse, error) {
	response, err := draapi.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{Claims: names(claims)})
	if err != nil {
		return nil, err
	}
	return response.Claims, nil
}

// Unprepare unprepares claims in one call. It joins the errors of all claims.
func (p *Plugin) Unprepare(ctx context.Context, claims ...*resourceapi.ResourceClaim) error {
	response, err := draapi.NewDRAPluginClient(p.conn).NodeUnprepareResources(ctx, &draapi.NodeUnprepareResourcesRequest{Claims: names(claims)})
	if err != nil {
		return err
	}
	var errs []error
	for _, claim := range claims {
		result, ok := response.Claims[string(claim.UID)]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("no result for claim %s", claim.Name))
		case result.Error != "":
			errs = append(errs, fmt.Errorf("claim %s: %s", claim.Name, result.Error))
		}
	}
	return errors.Join(errs...)
}

// Health opens the stream of device health.
func (p *Plugin) Health(ctx context.Context) (grpc.ServerStreamingClient[healthapi.NodeWatchResourcesResponse], error) {
	return healthapi.NewDRAResourceHealthClient(p.conn).NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
}

func names(claims []*resourceapi.ResourceClaim) []*draapi.Claim {
	out := make([]*draapi.Claim, len(claims))
	for i, claim := range claims {
		out[i] = &draapi.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
	}
	return out
}
