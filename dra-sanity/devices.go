// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
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
		if _, known := want[pool.Name]; !known || pool.Generation > generation[pool.Name] {
			generation[pool.Name], count[pool.Name], want[pool.Name] = pool.Generation, 0, pool.ResourceSliceCount
		}
		if pool.Generation != generation[pool.Name] {
			continue
		}
		count[pool.Name]++
		if other := want[pool.Name]; other != pool.ResourceSliceCount {
			errs = append(errs, fmt.Errorf("slices of pool %s say that it has %d and %d slices", pool.Name, other, pool.ResourceSliceCount))
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(want)) {
		if count[pool] != want[pool] {
			errs = append(errs, fmt.Errorf("pool %s has %d slices of generation %d and says that it has %d", pool, count[pool], generation[pool], want[pool]))
		}
	}
	return errs
}

// report notes what is wrong with a slice.
type report func(format string, args ...any)

// atMost reports a number above a limit.
func (wrong report) atMost(limit, number int, what string) {
	if number > limit {
		wrong("has %d %s, at most %d are allowed", number, what, limit)
	}
}

// invalid names what a scheduler or the API server would refuse or misread. The limits are those of
// k8s.io/api/resource/v1/types.go.
func (n *node) invalid(found []resourceapi.ResourceSlice) (errs []error) {
	errs = incomplete(found)
	seen := map[string]bool{}
	for _, slice := range found {
		wrong := report(func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("slice %s: %w", slice.Name, fmt.Errorf(format, args...)))
		})
		once := func(what, name string) {
			key := what + " " + slice.Spec.Pool.Name + "/" + name
			if seen[key] {
				wrong("%s %s is in its pool twice", what, name)
			}
			seen[key] = true
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
				wrong("%s %q: %s", what, name, strings.Join(problems, ", "))
			}
		}
		n.checkSpec(slice.Spec, wrong)
		for _, set := range slice.Spec.SharedCounters {
			once("counter set", set.Name)
			wrong.atMost(resourceapi.ResourceSliceMaxCountersPerCounterSet, len(set.Counters), "counters in set "+set.Name)
		}
		for _, device := range slice.Spec.Devices {
			once("device", device.Name)
			checkDevice(device, func(format string, args ...any) { wrong("device %s: %w", device.Name, fmt.Errorf(format, args...)) })
		}
	}
	return errs
}

// checkSpec checks a slice without the parts of its devices and counters.
func (n *node) checkSpec(spec resourceapi.ResourceSliceSpec, wrong report) {
	if spec.NodeName != nil && *spec.NodeName != n.name {
		wrong("is of node %s", *spec.NodeName)
	}
	set := func(b *bool) bool { return b != nil && *b }
	nodes := slices.DeleteFunc([]bool{spec.NodeName != nil, spec.NodeSelector != nil, set(spec.AllNodes), set(spec.PerDeviceNodeSelection)}, func(is bool) bool { return !is })
	if len(nodes) != 1 {
		wrong("has %d of nodeName, nodeSelector, allNodes and perDeviceNodeSelection, one is wanted", len(nodes))
	}
	if len(spec.Devices) > 0 && len(spec.SharedCounters) > 0 {
		wrong("has devices and counter sets")
	}
	wrong.atMost(resourceapi.ResourceSliceMaxCounterSets, len(spec.SharedCounters), "counter sets")
	wrong.atMost(resourceapi.ResourceSliceMaxDevices, len(spec.Devices), "devices")
	if slices.ContainsFunc(spec.Devices, advanced) {
		wrong.atMost(resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures, len(spec.Devices), "devices, of which some have taints, counters or lists")
	}
}

// advanced reports whether a device lowers the number of devices in its slice.
func advanced(device resourceapi.Device) bool {
	for _, attribute := range device.Attributes {
		if listed(attribute) > 0 {
			return true
		}
	}
	return len(device.Taints)+len(device.ConsumesCounters) > 0
}

// listed returns the number of values in a list attribute, and 0 for others.
func listed(a resourceapi.DeviceAttribute) int {
	return len(a.IntValues) + len(a.BoolValues) + len(a.StringValues) + len(a.VersionValues)
}

func checkDevice(device resourceapi.Device, wrong report) {
	values := 0
	for name, attribute := range device.Attributes {
		values += max(1, listed(attribute))
		checkName(name, wrong)
		checkAttribute(name, attribute, wrong)
	}
	for name := range device.Capacity {
		checkName(name, wrong)
	}
	for _, consumed := range device.ConsumesCounters {
		wrong.atMost(resourceapi.ResourceSliceMaxCountersPerDeviceCounterConsumption, len(consumed.Counters), "counters of set "+consumed.CounterSet)
	}
	wrong.atMost(resourceapi.ResourceSliceMaxAttributeValuesPerDevice, values, "values of attributes")
	wrong.atMost(resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice, len(device.Attributes)+len(device.Capacity), "attributes and capacities")
	wrong.atMost(resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, len(device.ConsumesCounters), "entries of consumesCounters")
	wrong.atMost(resourceapi.DeviceTaintsMaxLength, len(device.Taints), "taints")
	wrong.atMost(resourceapi.BindingConditionsMaxSize, len(device.BindingConditions), "binding conditions")
	wrong.atMost(resourceapi.BindingFailureConditionsMaxSize, len(device.BindingFailureConditions), "binding failure conditions")
}

// checkName checks the name of an attribute or capacity: an identifier, which may follow a domain.
func checkName(name resourceapi.QualifiedName, wrong report) {
	domain, id, found := strings.Cut(string(name), "/")
	var problems []string
	if !found {
		id = domain
	} else if problems = validation.IsDNS1123Subdomain(domain); len(domain) > resourceapi.DeviceMaxDomainLength {
		problems = append(problems, "the domain is too long")
	}
	if problems = append(problems, content.IsCIdentifier(id)...); len(id) > resourceapi.DeviceMaxIDLength {
		problems = append(problems, "the identifier is too long")
	}
	if len(problems) > 0 {
		wrong("name %q: %s", name, strings.Join(problems, ", "))
	}
}

func checkAttribute(name resourceapi.QualifiedName, a resourceapi.DeviceAttribute, wrong report) {
	var fields map[string]any
	// An attribute is plain data, of which the fields without a value are omitted.
	if text, err := json.Marshal(a); err != nil || json.Unmarshal(text, &fields) != nil || len(fields) != 1 {
		wrong("attribute %s has %d kinds of values, one is wanted", name, len(fields))
	}
	versions, texts := a.VersionValues, a.StringValues
	if a.VersionValue != nil {
		versions = append(versions, *a.VersionValue)
	}
	if a.StringValue != nil {
		texts = append(texts, *a.StringValue)
	}
	for _, text := range slices.Concat(texts, versions) {
		wrong.atMost(resourceapi.DeviceAttributeMaxValueLength, len(text), "bytes in attribute "+string(name))
	}
	for _, text := range versions {
		// The parser also takes a "v" and spaces, which the API server refuses.
		if _, err := version.ParseSemantic(text); err != nil || strings.TrimPrefix(strings.TrimSpace(text), "v") != text {
			wrong("attribute %s: %q is no semantic version", name, text)
		}
	}
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
