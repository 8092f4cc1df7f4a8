// SPDX-License-Identifier: Apache-2.0

// Package agent puts a node agent together from its parts, in the order in which
// they need each other, and runs it.
//
//	hardware → inventory ─┬→ claims → holders ─┐
//	node     → offer     ─┤                    ├→ controller → plugin → kubelet
//	cluster  → features  ─┴────────────────────┘
//
// It decides nothing about GPUs or claims, and knows flags only to name them in
// errors.
package agent
