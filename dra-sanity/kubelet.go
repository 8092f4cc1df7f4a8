// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin is a driver as it has registered.
type plugin struct {
	socket string
	// at is when the socket was made.
	at   time.Time
	info *registerapi.PluginInfo
}

// plugins returns the drivers of a name that answer in the folder where the kubelet looks for plugins, in the order
// of their sockets' times.
func (n *node) plugins(ctx context.Context) ([]plugin, error) {
	var sockets []plugin
	err := filepath.WalkDir(n.registry, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode()&os.ModeSocket != 0 {
			sockets = append(sockets, plugin{socket: path, at: info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sockets, func(a, b plugin) int { return a.at.Compare(b.at) })
	var plugins []plugin
	var errs []error
	for _, socket := range sockets {
		var err error
		socket.info, err = register(ctx, socket.socket)
		switch {
		case err != nil:
			errs = append(errs, err)
		case socket.info.Name == n.driverName:
			plugins = append(plugins, socket)
		}
	}
	if len(plugins) > 0 {
		// A socket without a listener is of a driver that died.
		return plugins, nil
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no socket in %s is of %s", n.registry, n.driverName))...)
}

// register does what the kubelet does with a socket in its folder.
func register(ctx context.Context, socket string) (*registerapi.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // the answer counts
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("GetInfo on %s: %w", socket, err)
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		return nil, fmt.Errorf("NotifyRegistrationStatus on %s: %w", socket, err)
	}
	return info, nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// awaitPlugin waits until the driver has registered, and returns the youngest plugin, as the kubelet uses it.
func (n *node) awaitPlugin(ctx context.Context) (plugin, error) {
	var last plugin
	err := until(ctx, startLimit, func() error {
		plugins, err := n.plugins(ctx)
		if err == nil {
			last = plugins[len(plugins)-1]
			return nil
		}
		return errors.Join(n.ended(), err)
	})
	return last, err
}

// connect returns a connection to the driver's own socket.
func (n *node) connect(ctx context.Context) (*grpc.ClientConn, error) {
	p, err := n.awaitPlugin(ctx)
	if err != nil {
		return nil, err
	}
	return dial(p.info.Endpoint)
}

// prepare calls the driver as the kubelet does, and returns the answer for each claim by its UID. The error wraps
// errRefused if the driver answers the call with an error.
func (n *node) prepare(ctx context.Context, claims ...*drapb.Claim) (map[string]*drapb.NodePrepareResourceResponse, error) {
	conn, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // the answer counts
	ctx, cancel := context.WithTimeout(ctx, n.waits.call)
	defer cancel()
	response, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claims})
	switch status.Code(err) {
	case codes.OK:
		return response.Claims, nil
	case codes.DeadlineExceeded, codes.Unavailable:
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	default:
		return nil, fmt.Errorf("NodePrepareResources: %w: %w", errRefused, err)
	}
}

// unprepare calls the driver as the kubelet does.
func (n *node) unprepare(ctx context.Context, claims ...*drapb.Claim) error {
	conn, err := n.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer counts
	ctx, cancel := context.WithTimeout(ctx, n.waits.call)
	defer cancel()
	response, err := drapb.NewDRAPluginClient(conn).NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	var errs []error
	for _, claim := range claims {
		answer, ok := response.Claims[claim.Uid]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodeUnprepareResources has no entry for claim %s", claim.Name))
		case answer != nil && answer.Error != "":
			errs = append(errs, fmt.Errorf("NodeUnprepareResources of claim %s: %s", claim.Name, answer.Error))
		}
	}
	return errors.Join(errs...)
}

// ready prepares a claim and checks the answer. A driver may ask for more time by an error, as the kubelet calls again.
func (n *node) ready(ctx context.Context, claim *resourceapi.ResourceClaim) ([]*drapb.Device, error) {
	var devices []*drapb.Device
	err := until(ctx, n.waits.again, func() (err error) {
		devices, err = n.readyOnce(ctx, claim)
		return err
	})
	return devices, err
}

func (n *node) readyOnce(ctx context.Context, claim *resourceapi.ResourceClaim) ([]*drapb.Device, error) {
	answers, err := n.prepare(ctx, call(claim))
	if err != nil {
		return nil, err
	}
	return n.checkAnswer(claim, answers)
}

// checkAnswer returns the devices of a claim, of which each that is allocated must be there and resolve. An answer has what
// the runtime must add, so that of a driver that uses NRI may have none.
func (n *node) checkAnswer(claim *resourceapi.ResourceClaim, answers map[string]*drapb.NodePrepareResourceResponse) ([]*drapb.Device, error) {
	answer, ok := answers[string(claim.UID)]
	switch {
	case !ok || answer == nil:
		return nil, fmt.Errorf("NodePrepareResources has no entry for claim %s", claim.Name)
	case answer.Error != "":
		return nil, fmt.Errorf("NodePrepareResources of claim %s: %s", claim.Name, answer.Error)
	}
	var errs []error
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != n.driverName || n.usesNRI && len(answer.Devices) == 0 {
			continue
		}
		request, _, _ := strings.Cut(result.Request, "/")
		if !slices.ContainsFunc(answer.Devices, func(d *drapb.Device) bool {
			return d.PoolName == result.Pool && d.DeviceName == result.Device &&
				(len(d.RequestNames) == 0 || slices.ContainsFunc(d.RequestNames, func(r string) bool { return r == result.Request || r == request }))
		}) {
			errs = append(errs, fmt.Errorf("the answer for claim %s lacks device %s of pool %s for request %s", claim.Name, result.Device, result.Pool, result.Request))
		}
	}
	for _, device := range answer.Devices {
		if !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == n.driverName && r.Pool == device.PoolName && r.Device == device.DeviceName
		}) {
			errs = append(errs, fmt.Errorf("the answer for claim %s has device %s of pool %s, which is not allocated", claim.Name, device.DeviceName, device.PoolName))
		}
		errs = append(errs, n.resolve(device.CdiDeviceIds...))
	}
	return answer.Devices, errors.Join(errs...)
}

// call is a claim in a call of the kubelet.
func call(claim *resourceapi.ResourceClaim) *drapb.Claim {
	return &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
}
