// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// claim creates a ResourceClaim in the cluster and allocates a whole device to it, as
// the scheduler would.
func (b *bench) claim(ctx context.Context, device string) (*resourceapi.ResourceClaim, error) {
	return b.allocate(ctx, device, nil)
}

// share creates a ResourceClaim in the cluster and allocates shareMemory of a device
// to it.
func (b *bench) share(ctx context.Context, device string) (*resourceapi.ResourceClaim, error) {
	return b.allocate(ctx, device, map[resourceapi.QualifiedName]resource.Quantity{
		"memory":  *resource.NewQuantity(shareMemory, resource.BinarySI),
		"compute": *resource.NewQuantity(0, resource.DecimalSI),
	})
}

// allocate creates a claim and allocates the consumed capacity of the device to it. If
// consumed is nil, it allocates the whole device.
func (b *bench) allocate(ctx context.Context, device string, consumed map[resourceapi.QualifiedName]resource.Quantity) (*resourceapi.ResourceClaim, error) {
	request := &resourceapi.ExactDeviceRequest{DeviceClassName: harness.DriverName}
	if consumed != nil {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: consumed}
	}
	claim, err := b.claims().Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: request,
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a claim: %w", err)
	}
	slice, err := b.published(ctx, device)
	if err != nil {
		return nil, err
	}
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: harness.DriverName, Pool: b.node, Device: device}
	if ptr.Deref(slice.AllowMultipleAllocations, false) {
		result.ShareID = ptr.To(uuid.NewUUID())
		if result.ConsumedCapacity = consumed; consumed == nil {
			// A request without capacity consumes the default of the device's policy.
			result.ConsumedCapacity = wholeOf(slice)
		}
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{b.node}}},
		}}},
	}
	if claim, err = b.claims().UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("allocate a claim: %w", err)
	}
	return claim, nil
}

// published returns a published device by its name.
func (b *bench) published(ctx context.Context, name string) (*resourceapi.Device, error) {
	devices, err := b.devices(ctx)
	if err != nil {
		return nil, err
	}
	for i := range devices {
		if devices[i].Name == name {
			return &devices[i], nil
		}
	}
	return nil, fmt.Errorf("device %s is not published", name)
}

func wholeOf(device *resourceapi.Device) map[resourceapi.QualifiedName]resource.Quantity {
	consumed := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, capacity := range device.Capacity {
		consumed[name] = capacity.Value
		if p := capacity.RequestPolicy; p != nil && p.Default != nil {
			consumed[name] = *p.Default
		}
	}
	return consumed
}

// claims is the client of the bench's claims.
func (b *bench) claims() resourceclient.ResourceClaimInterface {
	return b.client.ResourceV1().ResourceClaims(b.namespace)
}

// cycle prepares, unprepares and deletes a claim. It returns what the meter measures of the
// first two.
func (b *bench) cycle(ctx context.Context, a *agent, claim *resourceapi.ResourceClaim, read meter) (prepare, unprepare float64, err error) {
	before, err := read()
	if err != nil {
		return 0, 0, err
	}
	if err := a.prepare(ctx, claim); err != nil {
		return 0, 0, err
	}
	between, err := read()
	if err != nil {
		return 0, 0, err
	}
	if err := a.kubelet.Unprepare(ctx, claim); err != nil {
		return 0, 0, err
	}
	after, err := read()
	if err != nil {
		return 0, 0, err
	}
	return between - before, after - between, b.claims().Delete(ctx, claim.Name, metav1.DeleteOptions{})
}

// burst prepares a claim on each device at the same time, with one call for each, appends the
// time that it took, and drops the claims. The kubelet calls so for as many pods.
func (b *bench) burst(ctx context.Context, a *agent, devices []string, samples *[]float64) error {
	claims := make([]*resourceapi.ResourceClaim, len(devices))
	for i, device := range devices {
		var err error
		if claims[i], err = b.claim(ctx, device); err != nil {
			return err
		}
	}
	time, err := took(func() error {
		errs := make([]error, len(claims))
		var all sync.WaitGroup
		for i, claim := range claims {
			all.Go(func() { errs[i] = a.prepare(ctx, claim) })
		}
		all.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	*samples = append(*samples, time)
	for _, claim := range claims {
		if err := b.drop(ctx, a, claim); err != nil {
			return err
		}
	}
	return nil
}

// drop unprepares and deletes a claim.
func (b *bench) drop(ctx context.Context, a *agent, claim *resourceapi.ResourceClaim) error {
	if err := a.kubelet.Unprepare(ctx, claim); err != nil {
		return err
	}
	return b.claims().Delete(ctx, claim.Name, metav1.DeleteOptions{})
}
