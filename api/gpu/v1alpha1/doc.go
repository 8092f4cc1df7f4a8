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
// It holds the types and their strict decoding. Which configuration wins where
// several apply, and what a device makes of it, is decided where claims are
// prepared.
package v1alpha1
