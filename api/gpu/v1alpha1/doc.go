// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the public vocabulary of the driver: everything that users,
// administrators and other programs read or write.
//
//   - The kinds of opaque configuration that a DeviceClass or a ResourceClaim can
//     carry ([GpuConfig], [MigConfig], [ShareConfig]), with defaults, strict
//     decoding and validation ([Decode]). Decode also converts the configuration of
//     NVIDIA's own driver (resource.nvidia.com/v1beta1).
//   - [DeviceData], which the driver writes to the status of a claim.
//   - The names of device types, attributes, capacities, taints, labels and
//     annotations.
//
// The package imports nothing else of this module. Which of several configurations
// applies to a device, and what the driver does with it, is decided elsewhere.
//
// +k8s:deepcopy-gen=package
package v1alpha1
