// SPDX-License-Identifier: Apache-2.0

// Package pages serves the pages of "kubectl gpu ui": rows of kubectl/rows as HTML and SVG.
// A [Source] reads the cluster. All text of the cluster is escaped.
package pages
