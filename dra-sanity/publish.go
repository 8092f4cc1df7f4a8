// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func registers(ctx context.Context, n *node) error {
	p, err := n.awaitPlugin(ctx)
	if err != nil {
		return err
	}
	if p.info.Type != "DRAPlugin" {
		err = errors.Join(err, fmt.Errorf("its type is %q", p.info.Type))
	}
	if !slices.Contains(p.info.SupportedVersions, drapb.DRAPluginService) {
		err = errors.Join(err, fmt.Errorf("its services are %q", p.info.SupportedVersions))
	}
	if _, statErr := os.Stat(p.info.Endpoint); statErr != nil {
		err = errors.Join(err, fmt.Errorf("its endpoint: %w", statErr))
	}
	return err
}

func registersAgain(ctx context.Context, n *node) error {
	if err := registers(ctx, n); err != nil {
		return err
	}
	return unpreparesUnknown(ctx, n) // the kubelet makes no call without a claim
}

func registersAfterKill(ctx context.Context, n *node) error {
	if err := n.restart(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	return registersAgain(ctx, n)
}

func slicesStable(ctx context.Context, n *node) error {
	versions := func() (all []string, err error) {
		found, err := n.complete(ctx)
		for _, slice := range found {
			all = append(all, slice.Name+" "+slice.ResourceVersion)
		}
		return all, err
	}
	before, err := versions()
	if err != nil {
		return err
	}
	// The time is what is tested.
	if err := sleep(ctx, n.waits.stable); err != nil {
		return err
	}
	after, err := versions()
	if err == nil && !slices.Equal(before, after) {
		err = fmt.Errorf("slices changed from %q to %q", before, after)
	}
	return err
}

// deviceNames returns all published devices, sorted.
func (n *node) deviceNames(ctx context.Context) ([]string, error) {
	found, err := n.slices(ctx)
	var names []string
	for _, slice := range found {
		for _, device := range slice.Spec.Devices {
			names = append(names, slice.Spec.Pool.Name+"/"+device.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// same waits until the driver publishes devices again, and nothing else.
func (n *node) same(ctx context.Context, want []string) error {
	return until(ctx, startLimit, func() error {
		if _, err := n.complete(ctx); err != nil {
			return err
		}
		names, err := n.deviceNames(ctx)
		if err == nil && !slices.Equal(names, want) {
			err = fmt.Errorf("devices are %q, want %q", names, want)
		}
		return err
	})
}

func slicesRestored(ctx context.Context, n *node) error {
	found, err := n.complete(ctx)
	if err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	if err := n.client.ResourceV1().ResourceSlices().Delete(ctx, found[0].Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return n.same(ctx, names)
}

// without returns the names that are not in another list.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// keeps does work, in which it ends as soon as the driver withdraws a device.
func (n *node) keeps(ctx context.Context, work func(ctx context.Context, want []string) error) error {
	if _, err := n.complete(ctx); err != nil {
		return err
	}
	want, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var withdrawn error
	var watch sync.WaitGroup
	watch.Go(func() {
		for withdrawn == nil && sleep(ctx, 20*time.Millisecond) == nil {
			now, err := n.deviceNames(ctx)
			if missing := without(want, now); err == nil && len(missing) > 0 {
				withdrawn = fmt.Errorf("in the meantime these devices were not published: %s", strings.Join(missing, ", "))
				cancel(withdrawn)
			}
		}
	})
	err = work(ctx, want)
	cancel(nil)
	watch.Wait()
	return cmp.Or(withdrawn, err)
}

func slicesAfterKill(ctx context.Context, n *node) error {
	return n.keeps(ctx, func(ctx context.Context, want []string) error {
		if err := n.restart(ctx, syscall.SIGKILL); err != nil {
			return err
		}
		// What a start withdraws, it withdraws within seconds of its registration.
		return errors.Join(n.same(ctx, want), sleep(ctx, n.waits.begin))
	})
}

func slicesAPIAway(ctx context.Context, n *node) error {
	if n.server == nil {
		return errNoServer
	}
	if err := n.keeps(ctx, func(ctx context.Context, want []string) error {
		n.server.setDown(true)
		err := sleep(ctx, n.waits.outage)
		n.server.setDown(false)
		// The pauses of a client grow, so that it may return as late again as the outage was long.
		return errors.Join(err, sleep(ctx, n.waits.outage+n.waits.begin), n.same(ctx, want))
	}); err != nil {
		return err
	}
	return n.ended()
}

// health reads the first message of the stream that the kubelet would choose. A driver need not have one.
func health(ctx context.Context, n *node) error {
	if _, err := n.complete(ctx); err != nil {
		return err
	}
	published, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	p, err := n.awaitPlugin(ctx)
	if err != nil {
		return err
	}
	conn, err := dial(p.info.Endpoint)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer counts
	client := healthpb.NewDRAResourceHealthClient(conn)
	switch services := p.info.SupportedVersions; {
	case slices.Contains(services, healthpb.DRAResourceHealthService):
	case slices.Contains(services, healthalpha.DRAResourceHealthService):
		client = healthpb.V1Alpha1ClientWrapper{Client: healthalpha.NewDRAResourceHealthClient(conn)}
	default:
		return fmt.Errorf("%w: the driver registers no health service", errSkipped)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := client.NodeWatchResources(ctx, &healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	answer, err := stream.Recv()
	if status.Code(err) == codes.Unimplemented { // the helper of Kubernetes registers the service for all drivers
		return fmt.Errorf("%w: the driver has no health stream", errSkipped)
	}
	if err != nil {
		return fmt.Errorf("NodeWatchResources: %w", err)
	}
	var names []string
	for _, device := range answer.Devices {
		names = append(names, device.Device.GetPoolName()+"/"+device.Device.GetDeviceName())
	}
	if others := without(names, published); len(others) > 0 || len(names) == 0 {
		return fmt.Errorf("of %d devices these are not published: %q", len(names), others)
	}
	return nil
}
