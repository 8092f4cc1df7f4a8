// SPDX-License-Identifier: Apache-2.0

// Package ledger writes the table of the state that has what claims hold and have changed.
//
// The truth is on the disk: two agents share it during a rolling update. So the ledger reads
// it when this agent has changed a claim, around each scan of the hardware, and before the
// node follows another configuration.
package ledger
