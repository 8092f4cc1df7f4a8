// Package podresources asks the kubelet which GPUs a device plugin has given to
// pods, through the kubelet's PodResources API.
//
// It asks when it is told to and remembers nothing. When to ask, and what
// follows for the GPUs, is not its business; neither are devices that pods have
// through claims, which the API lists apart.
//
// Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
