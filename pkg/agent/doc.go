// SPDX-License-Identifier: Apache-2.0

// Package agent creates a node agent from its parts, and runs it. It creates each
// part after the parts that it needs.
//
//	hardware → inventory ─┐
//	cluster, node files ──┼→ state → controller → plugin → kubelet
//	claims   → ledger ────┘
//
// Next to them, attribution and usage find what containers use, and telemetry and viewers show it.
//
// It decides nothing about GPUs or claims, and knows flags only to name them in
// errors.
package agent
