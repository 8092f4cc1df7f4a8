// SPDX-License-Identifier: Apache-2.0

// Package agent creates a node agent from its parts, and runs it. It creates the parts in
// five stages, each from the stages before:
//
//	openNode      → the agent's folder, the hardware, clients of other programs
//	newKnowledge  → the state and its writers
//	newClaims     → the manager of claims, and the ledger of held devices
//	newObservers  → the publisher of the state, and the readers of usage and faults
//	newServing    → the parts that serve the kubelet
//
// Data flows as in package state:
//
//	hardware → inventory ─┐
//	cluster, node files ──┼→ state → controller → kubelet → the kubelet, ResourceSlices
//	claims   → ledger ────┘
//
// The kubelet's calls change claims through package kubelet, and rounds change them through package
// reconcile. Both pass what users must know to package report, which writes it to the API server:
//
//	kubelet ───┐
//	reconcile ─┴→ report → status.devices, events
//
// Next to them, attribution and usage find what containers use, and telemetry and viewers show it.
//
// It decides nothing about GPUs or claims.
package agent
