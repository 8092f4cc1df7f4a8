// Package v1alpha1 is the opaque configuration that a DeviceClass or a
// ResourceClaim can carry for this driver:
//
//	config:
//	- opaque:
//	    driver: gpu.nvidia.com
//	    parameters:
//	      apiVersion: gpu.nvidia.com/v1alpha1
//	      kind: GpuConfig
//
// It holds the types, their defaults, validation and strict decoding, and the
// conversion of the configuration of NVIDIA's own driver
// (resource.nvidia.com/v1beta1). Which configuration wins where several apply,
// and what a device makes of it, is decided where claims are prepared.
package v1alpha1
