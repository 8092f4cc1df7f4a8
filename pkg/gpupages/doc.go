// SPDX-License-Identifier: Apache-2.0

// Package gpupages serves the pages of "kubectl gpu ui": rows of pkg/gpurows as HTML and SVG.
// A [Source] reads the cluster. All text of the cluster is escaped.
package gpupages
