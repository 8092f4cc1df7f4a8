// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// dataOf returns the data about a device for the claim's status.
func dataOf(d claim.Device) *v1alpha1.DeviceData {
	data := v1alpha1.NewDeviceData()
	data.UUID = d.UUID
	if d.Name.Kind.Scope() != kind.ScopeNode {
		data.PCIBusID = d.Name.Address.String()
	}
	data.Share = d.Terms.Data(d.Name.Kind)
	return data
}

// equalData reports whether raw has the same fields as the data. The API server
// changes their order.
func equalData(d *v1alpha1.DeviceData, raw []byte) bool {
	var other v1alpha1.DeviceData
	if json.Unmarshal(raw, &other) != nil {
		return false
	}
	want, err := json.Marshal(d)
	got, otherErr := json.Marshal(&other)
	return err == nil && otherErr == nil && bytes.Equal(want, got)
}

// addShareAttributes adds the attributes of this claim's share to the published attributes of a
// device. It replaces the published sharing and enforcement, which describe how the
// device could be shared.
func addShareAttributes(a map[string]resourceapi.DeviceAttribute, s *v1alpha1.ShareData) {
	if s == nil {
		return
	}
	text := func(name, value string) {
		if value != "" {
			a[name] = resourceapi.DeviceAttribute{StringValue: &value}
		}
	}
	number := func(name string, value int) {
		if value != 0 {
			a[name] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(value))}
		}
	}
	quantity := func(name string, value *resource.Quantity) {
		if value != nil {
			text(name, value.String())
		}
	}
	switch s.Strategy {
	case v1alpha1.StrategyMPS:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByMPS)
	case v1alpha1.StrategyTimeSlicing:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByTimeSlice)
	case v1alpha1.StrategyPlain:
		fallthrough
	default:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByNone)
	}
	text(v1alpha1.AttributeEnforcement, string(s.Enforcement))
	text(v1alpha1.AttributeMemoryEnforcement, string(s.MemoryEnforcement))
	text(v1alpha1.AttributeComputeEnforcement, string(s.ComputeEnforcement))
	number(v1alpha1.MetadataShareContainers, s.Containers)
	quantity(v1alpha1.MetadataContainerMemoryLimit, s.ContainerMemoryLimit)
	quantity(v1alpha1.MetadataShareMemory, s.Memory)
	number(v1alpha1.MetadataShareCompute, s.Compute)
	number(v1alpha1.MetadataShareProcesses, s.Processes)
	number(v1alpha1.MetadataProcessThreadPercentage, s.ThreadPercentage)
	quantity(v1alpha1.MetadataProcessMemoryLimit, s.MemoryLimit)
	text(v1alpha1.MetadataTimeSlice, string(s.TimeSlice))
}
