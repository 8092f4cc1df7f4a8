// SPDX-License-Identifier: Apache-2.0

// Package folder is for folders that several processes use and of which the last
// one leaves nothing: a lock on the folder itself, and a removal that spares what
// it does not know.
package folder
