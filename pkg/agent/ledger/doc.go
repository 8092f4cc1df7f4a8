// SPDX-License-Identifier: Apache-2.0

// Package ledger writes the table of the state that has what claims hold and have changed.
//
// The truth is on the disk: two agents share it during a rolling update. So the ledger reads
// it again before each use, and marks the table as stale when this agent changes a claim.
package ledger
