// SPDX-License-Identifier: Apache-2.0

// Package commands is the commands of "kubectl gpu": they read the API objects of a
// cluster, ask kubectl/fleet, and print the results. Only cordon, uncordon, drain, repaired
// and room change objects.
package commands
