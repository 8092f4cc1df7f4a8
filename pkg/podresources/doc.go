// SPDX-License-Identifier: Apache-2.0

// Package podresources reads from the kubelet's PodResources API which GPUs device
// plugins have allocated to pods.
//
// Out of scope: when to read, what follows for the GPUs, and devices that pods have
// through claims, which the API lists separately. The package keeps no state.
//
// Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
