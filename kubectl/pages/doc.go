// SPDX-License-Identifier: Apache-2.0

// Package pages serves the pages of "kubectl gpu ui": tables of kubectl/rows as HTML.
// A [Source] reads the cluster. All text of the cluster is escaped.
package pages
