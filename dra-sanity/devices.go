// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// slices returns the ResourceSlices of the driver in the order of their names. In a cluster it leaves out
// the slices of other nodes. With --exec such a slice is a fault of the driver.
func (n *node) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := n.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + n.driverName})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(slice resourceapi.ResourceSlice) bool {
		return n.command == "" && slice.Spec.NodeName != nil && *slice.Spec.NodeName != n.name
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

// problems are the parts of slices that a scheduler or the API server refuses or misreads. The limits are in
// k8s.io/api/resource/v1/types.go.
type problems []error

func (p *problems) add(where string, texts ...string) {
	for _, text := range texts {
		*p = append(*p, fmt.Errorf("%s: %s", where, text))
	}
}

func (p *problems) atMost(where, what string, number, most int) {
	if number > most {
		p.add(where, fmt.Sprintf("%d %s, at most %d are allowed", number, what, most))
	}
}

// invalid returns the problems of slices.
func (n *node) invalid(found []resourceapi.ResourceSlice) problems {
	all, seen := problems(incomplete(found)), map[string]bool{}
	for _, slice := range found {
		spec, where := slice.Spec, "slice "+slice.Name
		once := func(what, name string) {
			key := what + spec.Pool.Name + "/" + name
			if seen[key] {
				all.add(where, what+name+" is in its pool twice")
			}
			seen[key] = true
			all.add(where+", "+what+strconv.Quote(name), validation.IsDNS1123Label(name)...)
		}
		most := resourceapi.ResourceSliceMaxDevices
		for _, device := range spec.Devices {
			once("device ", device.Name)
			if all.addDevice(where+", device "+device.Name, device) {
				most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
			}
		}
		all.atMost(where, "devices", len(spec.Devices), most)
		for _, set := range spec.SharedCounters {
			once("counter set ", set.Name)
			all.atMost(where, "counters in set "+set.Name, len(set.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet)
		}
		all.atMost(where, "counter sets", len(spec.SharedCounters), resourceapi.ResourceSliceMaxCounterSets)
		if len(spec.Devices) > 0 && len(spec.SharedCounters) > 0 {
			all.add(where, "devices and counter sets")
		}
		if spec.NodeName != nil && *spec.NodeName != n.name {
			all.add(where, "is of node "+*spec.NodeName)
		}
		nodes := slices.DeleteFunc([]bool{spec.NodeName != nil, spec.NodeSelector != nil, spec.AllNodes != nil, spec.PerDeviceNodeSelection != nil}, func(set bool) bool { return !set })
		if len(nodes) != 1 {
			all.add(where, fmt.Sprintf("%d of nodeName, nodeSelector, allNodes and perDeviceNodeSelection, one is wanted", len(nodes)))
		}
	}
	return all
}

// addDevice also reports whether the device lowers the limit of devices in its slice.
func (p *problems) addDevice(where string, device resourceapi.Device) (advanced bool) {
	advanced = len(device.Taints)+len(device.ConsumesCounters) > 0
	names, values := slices.Collect(maps.Keys(device.Capacity)), 0
	for name, a := range device.Attributes {
		names = append(names, name)
		listed := len(a.IntValues) + len(a.BoolValues) + len(a.StringValues) + len(a.VersionValues)
		values, advanced = values+max(1, listed), advanced || listed > 0
		p.addAttribute(where+", attribute "+string(name), a)
	}
	for _, name := range names {
		at, domain, id := fmt.Sprintf("%s, name %q", where, name), "", string(name)
		if before, after, found := strings.Cut(id, "/"); found {
			domain, id = before, after
			p.add(at, validation.IsDNS1123Subdomain(domain)...)
		}
		p.add(at, content.IsCIdentifier(id)...)
		p.atMost(at, "bytes of a domain", len(domain), resourceapi.DeviceMaxDomainLength)
		p.atMost(at, "bytes of an identifier", len(id), resourceapi.DeviceMaxIDLength)
	}
	for _, consumed := range device.ConsumesCounters {
		p.atMost(where, "counters of set "+consumed.CounterSet, len(consumed.Counters), resourceapi.ResourceSliceMaxCountersPerDeviceCounterConsumption)
	}
	p.atMost(where, "attributes and capacities", len(names), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
	p.atMost(where, "values of attributes", values, resourceapi.ResourceSliceMaxAttributeValuesPerDevice)
	p.atMost(where, "entries of consumesCounters", len(device.ConsumesCounters), resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)
	p.atMost(where, "taints", len(device.Taints), resourceapi.DeviceTaintsMaxLength)
	p.atMost(where, "binding conditions", len(device.BindingConditions), resourceapi.BindingConditionsMaxSize)
	p.atMost(where, "binding failure conditions", len(device.BindingFailureConditions), resourceapi.BindingFailureConditionsMaxSize)
	return advanced
}

func (p *problems) addAttribute(where string, a resourceapi.DeviceAttribute) {
	var fields map[string]any
	// An attribute is plain data, of which the fields without a value are omitted.
	if text, err := json.Marshal(a); err != nil || json.Unmarshal(text, &fields) != nil || len(fields) != 1 {
		p.add(where, fmt.Sprintf("%d kinds of values, one is wanted", len(fields)))
	}
	versions, texts := slices.Clone(a.VersionValues), slices.Clone(a.StringValues)
	if a.VersionValue != nil {
		versions = append(versions, *a.VersionValue)
	}
	if a.StringValue != nil {
		texts = append(texts, *a.StringValue)
	}
	for _, text := range slices.Concat(texts, versions) {
		p.atMost(where, "bytes", len(text), resourceapi.DeviceAttributeMaxValueLength)
	}
	for _, text := range versions {
		// The parser also takes a "v" and spaces, which the API server refuses.
		if _, err := version.ParseSemantic(text); err != nil || strings.TrimPrefix(strings.TrimSpace(text), "v") != text {
			p.add(where, strconv.Quote(text)+" is no semantic version")
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
		set := func(c resourceapi.DeviceCounterConsumption) string { return slice.Spec.Pool.Name + "/" + c.CounterSet }
		for _, device := range slice.Spec.Devices {
			if slices.ContainsFunc(device.Taints, func(t resourceapi.DeviceTaint) bool { return t.Effect != resourceapi.DeviceTaintEffectNone }) ||
				slices.ContainsFunc(device.ConsumesCounters, func(c resourceapi.DeviceCounterConsumption) bool { return counters[set(c)] }) {
				continue
			}
			for _, consumed := range device.ConsumesCounters {
				counters[set(consumed)] = true
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
