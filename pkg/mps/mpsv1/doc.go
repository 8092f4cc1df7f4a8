// SPDX-License-Identifier: Apache-2.0

// Package mpsv1 is version 1 of the protocol of gpu-mps-supervisor. "make generate"
// generates it from supervisor.proto. The package also translates from and to the
// vocabulary of package gpu. The node agent uses it through package client.
package mpsv1

// DefaultSocket is the supervisor's unix socket unless it is configured otherwise.
const DefaultSocket = "/run/gpu-mps-supervisor/supervisor.sock"
