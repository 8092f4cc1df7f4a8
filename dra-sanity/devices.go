// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// poolDevice is a published device.
type poolDevice struct {
	driver, pool string
	resourceapi.Device
}

// slices returns the ResourceSlices of the driver in the order of their names. Those of other nodes are left out in a
// cluster, where they are right. With --exec they are faults of the driver.
func (n *node) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := n.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + n.driverName})
	if err != nil {
		return nil, err
	}
	if n.command != "" {
		return list.Items, nil
	}
	return slices.DeleteFunc(list.Items, func(slice resourceapi.ResourceSlice) bool {
		return slice.Spec.NodeName != nil && *slice.Spec.NodeName != n.name
	}), nil
}

// complete returns the slices once each pool has as many as it says.
func (n *node) complete(ctx context.Context) (found []resourceapi.ResourceSlice, err error) {
	err = until(ctx, startLimit, func() error {
		if found, err = n.slices(ctx); err != nil {
			return err
		}
		if len(found) == 0 {
			return errors.Join(n.ended(), errors.New("the driver has published no ResourceSlice"))
		}
		return errors.Join(incomplete(found)...)
	})
	return found, err
}

// incomplete names the pools of which slices of the youngest generation are missing.
func incomplete(found []resourceapi.ResourceSlice) (errs []error) {
	generation, count, want := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, slice := range found {
		pool := slice.Spec.Pool
		if pool.Generation > generation[pool.Name] {
			generation[pool.Name], count[pool.Name] = pool.Generation, 0
		}
		if pool.Generation == generation[pool.Name] {
			count[pool.Name]++
			want[pool.Name] = pool.ResourceSliceCount
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(want)) {
		if count[pool] != want[pool] {
			errs = append(errs, fmt.Errorf("pool %s has %d slices of generation %d and says that it has %d", pool, count[pool], generation[pool], want[pool]))
		}
	}
	return errs
}

// Limits of the API: k8s.io/api/resource/v1/types.go.
const (
	maxDevices         = 128
	maxDevicesTainted  = 64
	maxAttributesTotal = 32
	maxStringValue     = 64
)

// invalid names what a scheduler or the API server would refuse or misread.
func (n *node) invalid(found []resourceapi.ResourceSlice) (errs []error) {
	errs = incomplete(found)
	seen := map[string]bool{}
	for _, slice := range found {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("slice %s: %w", slice.Name, fmt.Errorf(format, args...)))
		}
		if name := slice.Spec.NodeName; name != nil && *name != n.name {
			wrong("is of node %s", *name)
		}
		if len(slice.Spec.Devices) > maxDevices {
			wrong("has %d devices, at most %d are allowed", len(slice.Spec.Devices), maxDevices)
		}
		for _, device := range slice.Spec.Devices {
			if key := slice.Spec.Pool.Name + "/" + device.Name; seen[key] {
				wrong("device %s is in its pool twice", device.Name)
			} else {
				seen[key] = true
			}
			if problems := validation.IsDNS1123Label(device.Name); len(problems) > 0 {
				wrong("device %q: %s", device.Name, strings.Join(problems, ", "))
			}
			if len(device.Attributes)+len(device.Capacity) > maxAttributesTotal {
				wrong("device %s has %d attributes and capacities, at most %d are allowed", device.Name, len(device.Attributes)+len(device.Capacity), maxAttributesTotal)
			}
			if len(device.Taints)+len(device.ConsumesCounters) > 0 && len(slice.Spec.Devices) > maxDevicesTainted {
				wrong("has %d devices with taints or counters, at most %d are allowed", len(slice.Spec.Devices), maxDevicesTainted)
				break
			}
			for name, attribute := range device.Attributes {
				if attribute.StringValue != nil && len(*attribute.StringValue) > maxStringValue {
					wrong("device %s: attribute %s has %d bytes, at most %d are allowed", device.Name, name, len(*attribute.StringValue), maxStringValue)
				}
			}
		}
	}
	return errs
}

// usable returns devices that can all be allocated at the same time: of devices that share a set of counters, the first.
func (n *node) usable(ctx context.Context) ([]poolDevice, error) {
	found, err := n.complete(ctx)
	if err != nil {
		return nil, err
	}
	var usable []poolDevice
	counters := map[string]bool{}
	for _, slice := range found {
	devices:
		for _, device := range slice.Spec.Devices {
			for _, taint := range device.Taints {
				if taint.Effect != resourceapi.DeviceTaintEffectNone {
					continue devices
				}
			}
			for _, consumed := range device.ConsumesCounters {
				if counters[slice.Spec.Pool.Name+"/"+consumed.CounterSet] {
					continue devices
				}
			}
			for _, consumed := range device.ConsumesCounters {
				counters[slice.Spec.Pool.Name+"/"+consumed.CounterSet] = true
			}
			usable = append(usable, poolDevice{slice.Spec.Driver, slice.Spec.Pool.Name, device})
		}
	}
	// Devices for one claim alone say most about a driver.
	slices.SortStableFunc(usable, func(a, b poolDevice) int { return shared(a) - shared(b) })
	return usable, nil
}

func shared(d poolDevice) int {
	if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		return 1
	}
	return 0
}

// take returns the first usable devices. Its error wraps errSkipped if there are fewer, but there must be one.
func (n *node) take(ctx context.Context, count int) ([]poolDevice, error) {
	devices, err := n.usable(ctx)
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, errors.New("the driver publishes no device that can be allocated")
	}
	if len(devices) < count {
		return nil, fmt.Errorf("%w: it needs %d devices that can be allocated at the same time, and %d are published", errSkipped, count, len(devices))
	}
	return devices[:count], nil
}

// allocate creates a claim with devices as a scheduler does: one request for each, in the order given.
func (n *node) allocate(ctx context.Context, name string, devices []poolDevice, parameters string) (*resourceapi.ResourceClaim, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	allocation := &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n.name}}},
	}}}}
	for i, device := range devices {
		request := fmt.Sprintf("r%d", i)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "dra-sanity", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
		result := resourceapi.DeviceRequestAllocationResult{Request: request, Driver: device.driver, Pool: device.pool, Device: device.Name}
		if shared(device) == 1 {
			id := uuid.NewUUID()
			result.ShareID, result.ConsumedCapacity = &id, consumed(device)
		}
		allocation.Devices.Results = append(allocation.Devices.Results, result)
	}
	if parameters != "" {
		opaque := resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: n.driverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}}
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: opaque}}
		allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: opaque}}
	}
	client := n.client.ResourceV1().ResourceClaims(namespace)
	claim, err := client.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	// The end of the scenario removes it, and its pod, also if a later request fails.
	n.claims = append(n.claims, claim)
	if len(devices) == 0 {
		return claim, nil
	}
	pod, err := n.createPod(ctx, name)
	if err != nil {
		return nil, err
	}
	claim.Status.Allocation = allocation
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	allocated, err := client.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	*claim = *allocated
	return claim, nil
}

// createPod creates a pod that no scheduler places. A cluster ends the allocation of a claim without a pod.
func (n *node) createPod(ctx context.Context, name string) (*corev1.Pod, error) {
	return n.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "sanity.example/never"}},
			Containers:      []corev1.Container{{Name: "none", Image: "none"}},
		},
	}, metav1.CreateOptions{})
}

// consumed is what a claim that asks for no amount gets of a device that several share.
func consumed(device poolDevice) map[resourceapi.QualifiedName]resource.Quantity {
	amounts := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, capacity := range device.Capacity {
		amounts[name] = capacity.Value
		if policy := capacity.RequestPolicy; policy != nil && policy.Default != nil {
			amounts[name] = *policy.Default
		}
	}
	return amounts
}

// one allocates the first usable device to a new claim.
func (n *node) one(ctx context.Context, name string) (*resourceapi.ResourceClaim, error) {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return nil, err
	}
	return n.allocate(ctx, name, devices, "")
}
