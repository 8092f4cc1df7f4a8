// SPDX-License-Identifier: Apache-2.0

// Package kubectlgpu is the commands of "kubectl gpu": they read the API objects of a
// cluster, ask pkg/fleet, and print the results. Only cordon, uncordon, drain and repaired
// change objects.
package kubectlgpu
