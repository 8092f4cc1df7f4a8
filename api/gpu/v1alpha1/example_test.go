// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Decode the parameters of an opaque configuration. Fields that are left out get
// their defaults.
func ExampleDecode() {
	config, err := v1alpha1.Decode([]byte(`{
		"apiVersion": "gpu.nvidia.com/v1alpha1",
		"kind": "ShareConfig",
		"processes": 2
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	share := config.(*v1alpha1.ShareConfig)
	fmt.Println(share.Strategy, share.Processes, share.Compute)
	// Output: MPS 2 Proportional
}

// An error names the field and the values that it can have.
func ExampleDecode_invalid() {
	_, err := v1alpha1.Decode([]byte(`{
		"apiVersion": "gpu.nvidia.com/v1alpha1",
		"kind": "ShareConfig",
		"processes": 49
	}`))
	fmt.Println(err)
	// Output: ShareConfig: processes: Invalid value: 49: must be 1 to 48
}

// Put a configuration into a claim: a share of 10Gi that two processes use.
func ExampleShareConfig() {
	parameters, err := json.Marshal(&v1alpha1.ShareConfig{
		TypeMeta:  metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindShareConfig},
		Processes: 2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	claim := resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{
			Name: "gpu",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "share.nvidia.com",
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					v1alpha1.CapacityMemory: resource.MustParse("10Gi"),
				}},
			},
		}},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: parameters}},
		}}},
	}}}
	fmt.Println(string(claim.Spec.Devices.Config[0].Opaque.Parameters.Raw))
	// Output: {"kind":"ShareConfig","apiVersion":"gpu.nvidia.com/v1alpha1","processes":2}
}

// Read from the status of a claim what the claim has of a device.
func ExampleDeviceData() {
	status := resourceapi.AllocatedDeviceStatus{
		Device: "gpu-1b-00",
		Data: &runtime.RawExtension{Raw: []byte(`{
			"apiVersion": "gpu.nvidia.com/v1alpha1",
			"kind": "DeviceData",
			"uuid": "GPU-11111111-2222-3333-4444-555555555555",
			"pciBusID": "0000:1b:00.0",
			"share": {"strategy": "MPS", "memory": "10Gi", "enforcement": "cooperative"}
		}`)},
	}
	var data v1alpha1.DeviceData
	if err := json.Unmarshal(status.Data.Raw, &data); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(data.PCIBusID, data.Share.Memory, data.Share.Enforcement)
	// Output: 0000:1b:00.0 10Gi cooperative
}

// Decode any kind of this package with a scheme. Unlike Decode, a scheme sets no
// defaults and validates nothing.
func ExampleAddToScheme() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := decoder.Decode([]byte(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig"}`), nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %T\n", kind.Kind, object)
	// Output: GpuConfig: *v1alpha1.GpuConfig
}

// Select devices by an attribute that they may not have.
func Example_selector() {
	selector := fmt.Sprintf("device.attributes['%s'].?%s.orValue('') == '%s'",
		v1alpha1.DriverName, v1alpha1.AttributeSharing, v1alpha1.SharedByMPS)
	fmt.Println(selector)
	// Output: device.attributes['gpu.nvidia.com'].?sharing.orValue('') == 'mps'
}
