// SPDX-License-Identifier: Apache-2.0

// Package podresources reads from the kubelet's PodResources API which GPUs device
// plugins have allocated to pods, and which claims their containers use.
//
// Out of scope: when to read, and what follows for the GPUs. The package keeps no state.
//
// Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
