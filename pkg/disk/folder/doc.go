// SPDX-License-Identifier: Apache-2.0

// Package folder manages folders that several processes share and that the last
// process removes. It provides a lock on the folder itself, a removal that keeps folders
// with unknown files, and a watch of what other processes change.
package folder
