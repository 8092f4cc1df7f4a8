// SPDX-License-Identifier: Apache-2.0

// Package controller decides when the node's devices are published: it has package
// catalog describe what its sources know, and publishes the result if it differs
// from what was published last. See [Sources].
package controller
