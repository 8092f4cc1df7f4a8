// SPDX-License-Identifier: Apache-2.0

// Package podresources reads device plugins' GPU allocations from the kubelet's
// PodResources API. It also reads which claims the containers of pods use, from that API by
// name and from the kubelet's checkpoint by UID.
//
// Out of scope: when to read, and what follows for the GPUs. The package keeps no state.
//
// Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
