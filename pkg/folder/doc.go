// SPDX-License-Identifier: Apache-2.0

// Package folder manages folders that several processes share and that the last
// process removes. It provides a lock on the folder itself, and a removal that keeps
// folders with unknown files.
package folder
